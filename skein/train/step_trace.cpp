// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/step_trace.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <deque>
#include <numeric>
#include <utility>

#include "skein/comm/group.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/cost/flops.h"
#include "skein/plan/finetune.h"
#include "skein/report/hardware.h"
#include "skein/train/place.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Marks are events of the stream that the calling thread queues its work on.
class StreamClock final : public trace::DeviceClock {
 public:
  explicit StreamClock(at::Device device) : device_(device) {
    current_stream(device_).synchronize();
    mark();
  }

  size_t mark() override {
    auto& event = events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(current_stream(device_));
    return events_.size() - 1;
  }

  double microseconds(size_t mark) override {
    events_[mark].synchronize();
    return 1e3 * events_.front().elapsedTime(events_[mark]);
  }

 private:
  at::Device device_;
  std::deque<c10::Event> events_;
};

config::StepRange range_of(const config::LogConfig& config) {
  return config.profile_steps.empty() ? config::StepRange{0, 0}
                                      : *config::parse_step_range(config.profile_steps);
}

std::string trace_name(const std::string& updates, int rank) {
  return fmt::format("trace-{}.rank{}.json", updates, rank);
}

// Training does not end because a page about it cannot be written.
void write_page(const fs::path& path, const std::string& text) try {
  write_file_atomically(path, text);
} catch (const IoError& error) {
  log_warning("{}", error.what());
}

}  // namespace

StepTrace::StepTrace(Session& run, int64_t step) : run_(run), range_(range_of(run.config.log)) {
  if (range_.last == 0 || !run.world.is_first()) return;
  if (range_.first > run.plan.total_steps) {
    log_warning("profile_steps: {}: the run ends after update {}; nothing will be recorded",
                range_.text(), run.plan.total_steps);
  } else if (range_.first <= step) {
    log_warning("profile_steps: {}: this start continues behind update {}; {}", range_.text(), step,
                range_.last <= step ? "nothing will be recorded" : "what is left will be recorded");
  }
}

StepTrace::~StepTrace() {
  if (first_ > 0) trace::discard();
}

void StepTrace::before(int64_t step) {
  const int64_t update = step + 1;
  if (!range_.contains(update)) return;
  auto& phases = run_.metrics.phases();
  if (first_ == 0) {
    const auto device = run_.world.device;
    trace::begin({.device = device.is_cuda() ? std::make_shared<StreamClock>(device) : nullptr});
    first_ = update;
    blocked_before_ = comm::Group::seconds_blocked();
    phases.enter(Phase::kOther);
  }
  update_began_ = trace::now(trace::Clock::kDevice, trace::Weight::kEssential);
}

void StepTrace::after(int64_t step, const data::StepBatches& data) {
  if (first_ == 0) return;
  run_.metrics.phases().enter(Phase::kOther);
  trace::add("update", fmt::format("update {}", step), update_began_);
  lengths_.insert(lengths_.end(), data.lengths.begin(), data.lengths.end());
  shared_.insert(shared_.end(), data.shared.begin(), data.shared.end());
  last_ = step;
  if (step >= range_.last) finish();
}

void StepTrace::finish() {
  if (first_ == 0 || last_ < first_) return;
  write({std::exchange(first_, 0), last_});
  range_ = {};  // once is enough
}

void StepTrace::write(const config::StepRange& done) {
  const auto& world = run_.world;
  if (world.device.is_cuda()) current_stream(world.device).synchronize();
  const auto recording = trace::end();
  if (world.fence) world.fence();
  const auto name = done.text();
  if (world.leads_output()) record(name);
  write_page(run_.output / trace_name(name, world.group.rank()),
             trace::to_json(recording, world.group.rank()));
  if (recording.num_left_out > 0) {
    log_warning("the trace of updates {} holds its first {} spans; {} later ones are left out",
                name, recording.events.size(), recording.num_left_out);
  }
  if (!world.is_first()) return;
  const auto table = report::profile_table(profile_of(recording, done));
  log_info("{}  trace: {}", table,
           (run_.output / fmt::format("trace-{}.rank*.json", name)).string());
  write_page(run_.output / fmt::format("profile-{}.txt", name), table);
}

// --fresh removes what a run has written.
void StepTrace::record(const std::string& name) const try {
  std::vector<fs::path> paths = {run_.output / fmt::format("profile-{}.txt", name)};
  for (int rank = 0; rank < run_.world.group.size(); ++rank) {
    paths.push_back(run_.output / trace_name(name, rank));
  }
  record_files(run_.output, start_token(run_.output, run_.world), paths);
} catch (const IoError& error) {
  log_warning("{}", error.what());
}

report::Profile StepTrace::profile_of(const trace::Recording& recording,
                                      const config::StepRange& done) const {
  report::Profile profile{
      .updates = done.text(),
      .num_updates = done.last - done.first + 1,
      .ranks = run_.world.group.size(),
      .of_device = recording.has_device(),
      .seconds = recording.duration * 1e-6,
      .seconds_waiting = comm::Group::seconds_blocked() - blocked_before_,
      .num_tokens = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0}),
      .peak_flops = report::peak_flops(device_name(run_.world.device), run_.dtype).value_or(0),
      .peak_memory_bytes = run_.sharded.memory().peak_bytes()};
  for (const auto phase : kStepPhases) {
    const double seconds = recording.microseconds("phase", name_of(phase)) * 1e-6;
    if (seconds > 0 || !is_of_rollouts(phase)) profile.phases.push_back({name_of(phase), seconds});
  }
  const plan::TrainingFlops flops(run_.architecture.dimensions(),
                                  plan::tuned_model(run_.config, run_.architecture).shapes);
  const auto read = flops.parts(lengths_), left_out = flops.parts(shared_);
  for (size_t i = 0; i < read.size(); ++i) {
    profile.flops.push_back({read[i].component, read[i].flops - left_out[i].flops});
  }
  return profile;
}

}  // namespace skein::train
