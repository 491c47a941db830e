// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/step_trace.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <deque>
#include <numeric>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/cost/flops.h"
#include "skein/plan/finetune.h"
#include "skein/report/hardware.h"
#include "skein/train/place.h"

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

// Training does not end because a page about it cannot be written.
void write_page(const fs::path& path, const std::string& text) try {
  write_file_atomically(path, text);
} catch (const IoError& error) {
  log_warning("{}", error.what());
}

}  // namespace

StepTrace::StepTrace(Session& run) : run_(run), range_(range_of(run.config.log)) {
  if (range_.first <= run.plan.total_steps || !run.world.is_first()) return;
  log_warning("profile_steps: {}: the run ends after update {}; nothing will be recorded",
              range_.text(), run.plan.total_steps);
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
    phases.enter(Phase::kOther);
  }
  update_began_ = trace::now();
}

void StepTrace::after(int64_t step, std::span<const int64_t> lengths) {
  if (first_ == 0) return;
  run_.metrics.phases().enter(Phase::kOther);
  trace::add("update", fmt::format("update {}", step), update_began_);
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
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
  write_page(run_.output / fmt::format("trace-{}.rank{}.json", name, world.group.rank()),
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

report::Profile StepTrace::profile_of(const trace::Recording& recording,
                                      const config::StepRange& done) const {
  report::Profile profile{
      .updates = done.text(),
      .num_updates = done.last - done.first + 1,
      .ranks = run_.world.group.size(),
      .of_device = recording.has_device(),
      .seconds = recording.duration * 1e-6,
      .seconds_waiting = recording.microseconds("wait", "wait") * 1e-6,
      .num_tokens = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0}),
      .peak_flops = report::peak_flops(device_name(run_.world.device), run_.dtype).value_or(0),
      .peak_memory_bytes = run_.sharded.memory().peak_bytes()};
  for (const auto phase : kStepPhases) {
    profile.phases.push_back(
        {name_of(phase), recording.microseconds("phase", name_of(phase)) * 1e-6});
  }
  const plan::TrainingFlops flops(run_.architecture.dimensions(),
                                  plan::tuned_model(run_.config, run_.architecture).shapes);
  for (const auto& [component, amount] : flops.parts(lengths_)) {
    profile.flops.push_back({component, amount});
  }
  return profile;
}

}  // namespace skein::train
