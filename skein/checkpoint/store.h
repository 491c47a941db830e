// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Saves checkpoints of a run while it goes on.
//
// Every rank has one and makes the same calls in the same order. A save stalls the caller for the
// copy to host memory; a thread of the store then writes, agrees with the other ranks through the
// key-value store and commits. No collective is used. Not thread-safe.
//
// A save that fails is abandoned with one warning on rank 0: older checkpoints stay, the run goes
// on.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "skein/checkpoint/snapshot.h"
#include "skein/checkpoint/writer.h"
#include "skein/core/file.h"
#include "skein/core/store.h"

namespace skein::checkpoint {

struct StoreOptions {
  fs::path output;
  int rank = 0;
  int size = 1;
  std::string token;             // alike on all ranks, new at every start (generation included)
  int64_t save_total_limit = 0;  // 0: keep all
  std::chrono::milliseconds deadline{600'000};    // for one save, all ranks; then it is abandoned
  uint64_t max_shard_bytes = kDefaultShardBytes;  // larger file sets are split
  RunConditions conditions;                       // recorded in the manifest
};

class CheckpointStore {
 public:
  // `store` outlives it.
  CheckpointStore(StoreOptions options, skein::Store& store);
  // Waits for the save under way, or stops it when an exception is passing.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Waits for the save before, copies, and returns while checkpoint-STEP is being written.
  void save(int64_t step, const Contents& contents);

  // The checkpoint of this step outlives save_total_limit: the best one so far. Call it before the
  // step is saved; until that is committed, the one before stays protected.
  void protect(int64_t step) { best_step_ = step; }
  // The same for a checkpoint that is there.
  void protect_saved(int64_t step) { protected_step_ = step; }

  // Waits for the save under way. Was the last one committed? (True when there was none.)
  bool finish();
  int64_t last_step() const { return step_; }  // that save() was called for
  // Step of the newest commit of this store that finish() or a later save has seen.
  std::optional<int64_t> last_committed() const { return last_committed_; }

  // Writes the model and the texts into the output folder itself; optimizer entries are ignored.
  // Waits; throws IoError on every rank when it fails.
  void save_model(const Contents& contents);

 private:
  std::unique_ptr<Exchange> make_exchange(int64_t step);
  CommitOptions commit_options(int64_t step) const;
  void forget_older_keys();

  StoreOptions options_;
  skein::Store& store_;
  std::atomic<bool> stop_ = false;
  int64_t best_step_ = -1;  // protected once it is committed
  int64_t protected_step_ = -1;
  int64_t num_saves_ = 0;
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // whose keys may still be in the store

  // Of the save under way; read again after the thread has been joined.
  at::Tensor buffer_;
  Job job_;
  std::thread thread_;
  int64_t step_ = 0;
  std::string failure_;
  std::optional<int64_t> last_committed_;
};

}  // namespace skein::checkpoint
