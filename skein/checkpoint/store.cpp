// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

#include "skein/checkpoint/files/catalog.h"
#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/trace/trace.h"

namespace skein::checkpoint {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{50};
// What a save that has failed elsewhere may take to end here.
constexpr std::chrono::seconds kEnding{1};
// No byte is told more rarely than this.
constexpr std::chrono::seconds kTold{2};

// Is the writer of a save waited for in vain? Judged a little later than writers judge each other,
// who know more, and by rank 0 first, whose word the others wait for: so only one that hangs in a
// write is found here.
class SaveWatch {
 public:
  SaveWatch(const Exchange& exchange, milliseconds timeout)
      : exchange_(exchange),
        timeout_(timeout),
        patience_(exchange.rank() == 0 ? timeout * 5 / 4 : timeout * 5 / 2),
        begun_(Clock::now()),
        moved_(exchange.last_move()) {}

  struct Problem {
    std::string why;
    bool is_told = false;  // by rank 0's writer
  };
  // Nothing: go on waiting.
  std::optional<Problem> problem() try {
    const auto now = Clock::now();
    if (const auto failure = exchange_.failure()) {
      failed_ = std::min(failed_, now);
      if (now <= failed_ + std::min<Clock::duration>(kEnding, timeout_ / 4)) return std::nullopt;
      return Problem{.why = *failure, .is_told = true};
    }
    if (const auto bytes = exchange_.total_bytes(); bytes != bytes_) {
      // What was told before this watch began may be old.
      if (bytes_ >= 0) moved_ = now;
      bytes_ = bytes;
    }
    moved_ = std::max(moved_, exchange_.last_move());
    const bool has_looked = now > begun_ + std::min<Clock::duration>(kTold, timeout_);
    if (!has_looked || now <= moved_ + patience_) return std::nullopt;
    const auto silence = std::chrono::duration_cast<std::chrono::seconds>(now - moved_);
    return Problem{
        .why = fmt::format("rank {}'s disk does not answer: no rank has written a byte for {} s",
                           exchange_.rank(), silence.count())};
  } catch (const CommError&) {
    return std::nullopt;  // the writer will say so
  }

 private:
  const Exchange& exchange_;
  const milliseconds timeout_;
  const milliseconds patience_;
  const Time begun_;
  Time moved_;
  Time failed_ = Time::max();  // when that was first seen
  int64_t bytes_ = -1;         // not asked yet
};

}  // namespace

struct CheckpointStore::Writing {
  explicit Writing(std::shared_ptr<tensor::CopyEngine> engine) : staging(std::move(engine), stop) {}

  // Every rank has reported for the newest save, so none still waits for an older one.
  void forget_older_keys() {
    auto newest = std::move(exchanges.back());
    exchanges.pop_back();
    try {
      for (const auto& exchange : exchanges) exchange->erase_keys();
    } catch (const CommError&) {
      // Without the store the run is about to end; the keys end with it.
    }
    exchanges.clear();
    exchanges.push_back(std::move(newest));
  }

  std::atomic<bool> stop = false;  // ends waits
  Staging staging;
  Job job;
  std::vector<std::unique_ptr<Exchange>> exchanges;  // whose keys may still be in the store
};

CheckpointStore::CheckpointStore(StoreOptions options, skein::Store& store)
    : options_(std::move(options)), store_(store) {
  SKEIN_CHECK(!options_.token.empty(), "a run has a token");
  if (!options_.engine) options_.engine = tensor::make_copy_engine(at::kCPU);
  writing_ = std::make_shared<Writing>(options_.engine);
}

CheckpointStore::~CheckpointStore() {
  if (std::uncaught_exceptions() > 0) writing_->stop = true;
  if (hangs_) leave_behind();
  if (thread_.joinable()) thread_.join();
}

void CheckpointStore::prepare(const Contents& contents) {
  writing_->staging.prepare(plan_snapshot(contents, options_.max_shard_bytes).sources);
}

void CheckpointStore::await_prepared() { writing_->staging.await_prepared(); }

bool CheckpointStore::is_copying() const { return writing_->staging.is_copying(); }

void CheckpointStore::before_update() {
  auto& staging = writing_->staging;
  if (!staging.is_copying()) return;
  wait_for([&](milliseconds longest) { return staging.issued_within(longest); });
  staging.before_update();
}

// Copies, and lets a thread `write` what has come.
void CheckpointStore::begin(const Contents& contents, Staging::Wish wish, int64_t step,
                            Write write) {
  auto snapshot = plan_snapshot(contents, options_.max_shard_bytes);
  auto& job = writing_->job = std::move(snapshot.job);
  const bool held = static_cast<bool>(options_.compare_copied);
  job.pieces = writing_->staging.start(snapshot.sources, wish, held);
  job.flow = &writing_->staging;
  auto& exchange = *writing_->exchanges.emplace_back(make_exchange(step));
  const auto task = std::make_shared<std::packaged_task<std::string()>>(
      [writing = writing_, exchange = &exchange, write = std::move(write)] {
        const trace::Scope scope("save", "write files");
        auto failure = write(writing->job, *exchange);
        writing->staging.close();
        if (failure.empty() && !exchange->is_given_up()) writing->forget_older_keys();
        return failure;
      });
  written_ = task->get_future();
  is_open_ = true;
  try {
    thread_ = std::thread([task] { (*task)(); });
  } catch (const std::system_error& error) {
    log_warning("no thread for a save: {} (ulimit -u, or a container's pids.max); training waits",
                error.code().message());
    writing_->staging.confirm();
    (*task)();
    return;
  }
  if (!held) return;
  before_update();
  options_.compare_copied();
  writing_->staging.confirm();
}

void CheckpointStore::save(int64_t step, const Contents& contents, bool rotates) {
  finish();
  step_ = step;
  if (hangs_) return refuse(step);
  auto options = commit_options(step);
  options.rotates = rotates;
  const auto wish = options_.compare_copied ? Staging::Wish::kFewSlots : Staging::Wish::kAllAtOnce;
  begin(contents, wish, step, [options](const Job& job, Exchange& exchange) {
    return write_checkpoint(job, options, exchange);
  });
}

// The memory of saves is what the write that hangs is made from, and another would hang as well.
void CheckpointStore::refuse(int64_t step) {
  const auto why = fmt::format("rank {}'s write of {} has not returned: does its disk answer?",
                               options_.rank, checkpoint_name(hung_step_));
  writing_->exchanges.push_back(make_exchange(step));
  give_up(why);
  if (options_.rank == 0) {
    log_warning("{} was not saved; training goes on: {}", checkpoint_name(step), why);
  }
}

void CheckpointStore::give_up(const std::string& why) {
  failure_ = why;
  try {
    writing_->exchanges.back()->give_up(why);
  } catch (const CommError& error) {
    log_warning("cannot announce the end of a save: {}", error.what());
  }
}

// False: it was given up.
bool CheckpointStore::wait_for(const std::function<bool(milliseconds)>& done) {
  SaveWatch watch(*writing_->exchanges.back(), options_.timeout);
  const auto pause = std::max(kLook, milliseconds(options_.size));  // the store has other users
  while (!done(pause)) {
    const auto problem = watch.problem();
    if (!problem) continue;
    give_up(problem->why);
    writing_->staging.close();
    is_open_ = false;
    hangs_ = true;
    hung_step_ = step_;
    if (options_.rank == 0 && !problem->is_told) {
      log_warning("{} was not saved; training goes on: {}", checkpoint_name(step_), problem->why);
    }
    return false;
  }
  return true;
}

std::string CheckpointStore::end_of_writer() {
  if (thread_.joinable()) thread_.join();
  return written_.get();
}

bool CheckpointStore::finish() {
  const auto has_written = [this](milliseconds longest) {
    return written_.wait_for(longest) == std::future_status::ready;
  };
  if (hangs_ && has_written(milliseconds(0))) {
    end_of_writer();  // nobody waits for it any more
    hangs_ = false;
  }
  if (is_open_ && wait_for(has_written)) {
    is_open_ = false;
    failure_ = end_of_writer();
    if (failure_.empty()) last_committed_ = step_;
    const bool is_best = failure_.empty() && step_ == best_step_;
    if (is_best && !options_.on_each_node) protected_step_ = step_;
  }
  if (!failure_.empty()) check_fence();
  return failure_.empty();
}

void CheckpointStore::all_nodes_have(int64_t step) {
  if (!options_.on_each_node) return;
  common_step_ = step;
  if (step == best_step_) protected_step_ = step;
}

// The thread keeps what it works on.
void CheckpointStore::leave_behind() {
  thread_.detach();
  writing_ = std::make_shared<Writing>(options_.engine);
  hangs_ = false;
}

void CheckpointStore::save_model(const Contents& contents) {
  finish();
  if (hangs_) leave_behind();  // a model may be written where a checkpoint was not
  Contents model = contents;
  std::erase_if(model.sets, [](const FileSet& set) { return set.is_optimizer(); });
  std::string failure;
  do {
    begin(model, Staging::Wish::kFewSlots, -1,
          [options = commit_options(-1)](const Job& job, Exchange& exchange) {
            return write_model(job, options, exchange);
          });
    const bool ended = wait_for([this](milliseconds longest) {
      return written_.wait_for(longest) == std::future_status::ready;
    });
    is_open_ = false;
    failure = ended ? end_of_writer() : failure_;
  } while (!failure.empty() && !hangs_ && writing_->exchanges.back()->room_made());
  if (!failure.empty()) {
    check_fence();
    throw IoError(
        fmt::format("the model was not written to {}: {}", options_.output.string(), failure));
  }
}

void CheckpointStore::check_fence() const try {
  if (options_.fence) options_.fence();
} catch (const IoError&) {
  // Nobody knows: the next save will ask again.
}

std::unique_ptr<Exchange> CheckpointStore::make_exchange(int64_t step) {
  const auto what = step < 0 ? "model" : std::to_string(step);
  return std::make_unique<Exchange>(
      store_,
      ExchangeOptions{
          .prefix = fmt::format("checkpoint/{}/{}-{}", options_.token, ++num_saves_, what),
          .rank = options_.rank,
          .size = options_.size,
          .node = options_.node,
          .timeout = options_.timeout},
      writing_->stop);
}

CommitOptions CheckpointStore::commit_options(int64_t step) const {
  // The commit comes before older checkpoints are removed; but what other nodes make of it, this
  // one does not know then.
  const bool releases_best = step == best_step_ && !options_.on_each_node;
  return {.output = options_.output,
          .step = step,
          .token = options_.token,
          .save_total_limit = options_.save_total_limit,
          .protected_steps = {releases_best ? step : protected_step_, common_step_},
          .fence = options_.fence,
          .conditions = options_.conditions};
}

}  // namespace skein::checkpoint
