// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Saves checkpoints of a run while it goes on.
//
// Every rank has one and makes the same calls in the same order. A save copies to host memory: on a
// CPU at once, from a GPU while the caller goes on, until before_update(). A thread of the store
// writes what has come, agrees with the other ranks through the key-value store and commits. No
// collective is used. Not thread-safe.
//
// A save that fails is abandoned with one warning on rank 0: older checkpoints stay, the run goes
// on.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "skein/checkpoint/files/writer.h"
#include "skein/checkpoint/snapshot.h"
#include "skein/checkpoint/staging.h"
#include "skein/core/file.h"
#include "skein/core/store.h"

namespace skein::checkpoint {

struct StoreOptions {
  fs::path output;
  int rank = 0;
  int size = 1;
  std::string node;              // as in ExchangeOptions
  std::string token;             // alike on all ranks, new at every start (generation included)
  int64_t save_total_limit = 0;  // 0: keep all
  std::chrono::milliseconds timeout{600'000};     // no rank writes a byte: the save is abandoned
  uint64_t max_shard_bytes = kDefaultShardBytes;  // larger file sets are split
  RunConditions conditions;                       // recorded in the manifest
  std::function<void()> fence;                    // as in CommitOptions
  std::shared_ptr<CopyEngine> engine;             // none: that of CPUs
};

class CheckpointStore {
 public:
  // `store` outlives it.
  CheckpointStore(StoreOptions options, skein::Store& store);
  // Waits for the save under way, or stops it when an exception is passing.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Allocates, in the background, the host memory that saves of such contents need: it takes
  // seconds from a GPU. await_prepared() before the first step.
  void prepare(const Contents& contents);
  void await_prepared() { staging_.await_prepared(); }

  // Waits for the save before, and returns while checkpoint-STEP is being copied and written. The
  // tensors must not change before before_update() or finish(). `rotates`: checkpoints beyond
  // save_total_limit are removed, which takes as long as reading one.
  void save(int64_t step, const Contents& contents, bool rotates = true);

  // What the caller issues from here on may change them: it runs after the copies. Blocks the host
  // only where host memory is short. Nothing to do when is_copying() is false.
  void before_update() { staging_.before_update(); }
  bool is_copying() const { return staging_.is_copying(); }

  // The checkpoint of this step outlives save_total_limit: the best one so far. Call it before the
  // step is saved; until that is committed, the one before stays protected.
  void protect(int64_t step) { best_step_ = step; }
  // The same for a checkpoint that is there.
  void protect_saved(int64_t step) { protected_step_ = step; }

  // Waits for the save under way. Was the last one committed? (True when there was none.) Throws
  // CommError where it was not because the folder is another run's by now.
  bool finish();
  int64_t last_step() const { return step_; }  // that save() was called for
  // Step of the newest commit of this store that finish() or a later save has seen.
  std::optional<int64_t> last_committed() const { return last_committed_; }

  // Writes the model and the texts into the output folder itself; optimizer entries are ignored.
  // Waits; throws IoError on every rank when it fails.
  void save_model(const Contents& contents);

 private:
  void begin_job(const Contents& contents, Staging::Wish wish);
  std::unique_ptr<Exchange> make_exchange(int64_t step);
  CommitOptions commit_options(int64_t step) const;
  void check_fence() const;
  void forget_older_keys();

  StoreOptions options_;
  skein::Store& store_;
  std::atomic<bool> stop_ = false;
  int64_t best_step_ = -1;  // protected once it is committed
  int64_t protected_step_ = -1;
  int64_t num_saves_ = 0;
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // whose keys may still be in the store

  // Of the save under way; read again after the thread has been joined.
  Staging staging_;
  Job job_;
  bool is_open_ = false;       // a save that finish() has not seen the end of
  std::future<void> written_;  // by the thread
  std::thread thread_;
  int64_t step_ = 0;
  std::string failure_;
  std::optional<int64_t> last_committed_;
};

}  // namespace skein::checkpoint
