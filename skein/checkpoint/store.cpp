// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/store.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

#include "skein/checkpoint/files/catalog.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::checkpoint {

CheckpointStore::CheckpointStore(StoreOptions options, skein::Store& store)
    : options_(std::move(options)),
      store_(store),
      staging_(options_.engine ? options_.engine : make_copy_engine(at::kCPU), stop_) {
  SKEIN_CHECK(!options_.token.empty(), "a run has a token");
}

CheckpointStore::~CheckpointStore() {
  if (std::uncaught_exceptions() > 0) stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void CheckpointStore::prepare(const Contents& contents) {
  staging_.prepare(plan_snapshot(contents, options_.max_shard_bytes).sources);
}

void CheckpointStore::begin_job(const Contents& contents, Staging::Wish wish) {
  auto snapshot = plan_snapshot(contents, options_.max_shard_bytes);
  job_ = std::move(snapshot.job);
  job_.pieces = staging_.start(snapshot.sources, wish);
  job_.flow = &staging_;
}

void CheckpointStore::save(int64_t step, const Contents& contents, bool rotates) {
  finish();
  begin_job(contents, Staging::Wish::kAllAtOnce);
  step_ = step;
  exchanges_.push_back(make_exchange(step));
  auto options = commit_options(step);
  options.rotates = rotates;
  const auto write = [this, options, exchange = exchanges_.back().get()] {
    failure_ = write_checkpoint(job_, options, *exchange);
    staging_.close();
    if (failure_.empty()) forget_older_keys();
  };
  is_open_ = true;
  try {
    std::packaged_task<void()> task(write);
    written_ = task.get_future();
    thread_ = std::thread(std::move(task));
  } catch (const std::system_error& error) {
    log_warning("no thread for a save: {} (ulimit -u, or a container's pids.max); training waits",
                error.code().message());
    write();
  }
}

bool CheckpointStore::finish() {
  // A write that its disk does not answer cannot be taken back, but it can be told.
  while (thread_.joinable() && written_.wait_for(options_.timeout) == std::future_status::timeout) {
    log_warning("{} is still being written, training has waited {} s for it: does the disk answer?",
                (options_.output / checkpoint_name(step_)).string(),
                std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count());
  }
  if (thread_.joinable()) thread_.join();
  if (std::exchange(is_open_, false)) {
    if (failure_.empty()) last_committed_ = step_;
    if (failure_.empty() && step_ == best_step_) protected_step_ = step_;
  }
  if (!failure_.empty()) check_fence();
  return failure_.empty();
}

void CheckpointStore::save_model(const Contents& contents) {
  finish();
  Contents model = contents;
  model.optimizer.clear();
  model.optimizer_slices.clear();
  std::string failure;
  do {
    begin_job(model, Staging::Wish::kFewSlots);
    exchanges_.push_back(make_exchange(-1));
    failure = write_model(job_, commit_options(-1), *exchanges_.back());
    staging_.close();
  } while (!failure.empty() && exchanges_.back()->room_made());
  if (!failure.empty()) {
    check_fence();
    throw IoError(
        fmt::format("the model was not written to {}: {}", options_.output.string(), failure));
  }
  forget_older_keys();
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
      stop_);
}

CommitOptions CheckpointStore::commit_options(int64_t step) const {
  return {.output = options_.output,
          .step = step,
          .token = options_.token,
          .save_total_limit = options_.save_total_limit,
          // The commit comes before older checkpoints are removed.
          .protected_step = step == best_step_ ? step : protected_step_,
          .fence = options_.fence,
          .conditions = options_.conditions};
}

// Every rank has reported for the newest save, so none still waits for an older one.
void CheckpointStore::forget_older_keys() {
  auto newest = std::move(exchanges_.back());
  exchanges_.pop_back();
  try {
    for (const auto& exchange : exchanges_) exchange->erase_keys();
  } catch (const CommError&) {
    // Without the store the run is about to end; the keys end with it.
  }
  exchanges_.clear();
  exchanges_.push_back(std::move(newest));
}

}  // namespace skein::checkpoint
