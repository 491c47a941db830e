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
// on. So does it where a disk does not answer at all: the thread that waits for it is left behind,
// and until it comes back no checkpoint is saved.

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "skein/checkpoint/files/exchange.h"
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
  bool on_each_node = false;     // other nodes save the same into folders of their own
  std::chrono::milliseconds timeout{600'000};     // no rank writes a byte: the save is abandoned
  uint64_t max_shard_bytes = kDefaultShardBytes;  // larger file sets are split
  RunConditions conditions;                       // recorded in the manifest
  std::function<void()> fence;                    // as in CommitOptions
  std::shared_ptr<tensor::CopyEngine> engine;     // none: that of CPUs
  // Given where what is saved can change under the copy (it lies on a disk): save() then returns
  // when all was copied, calls this, which throws if something is not what it was, and only then
  // lets the save be committed. Little host memory will do.
  std::function<void()> compare_copied;
};

class CheckpointStore {
 public:
  // `store` outlives it.
  CheckpointStore(StoreOptions options, skein::Store& store);
  // Waits for the save under way, or stops it when an exception is passing; not for one that was
  // given up.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Allocates, in the background, the host memory that saves of such contents need: it takes
  // seconds from a GPU. await_prepared() before the first step.
  void prepare(const Contents& contents);
  void await_prepared();

  // Waits for the save before, and returns while checkpoint-STEP is being copied and written. The
  // tensors must not change before before_update() or finish(). `rotates`: checkpoints beyond
  // save_total_limit are removed, which takes as long as reading one.
  void save(int64_t step, const Contents& contents, bool rotates = true);

  // What the caller issues from here on may change them: it runs after the copies. Blocks the host
  // only where host memory is short. Nothing to do when is_copying() is false.
  void before_update();
  bool is_copying() const;

  // The checkpoint of this step outlives save_total_limit: the best one so far. Call it before the
  // step is saved; until that is committed, the one before stays protected.
  void protect(int64_t step) { best_step_ = step; }
  // The same for a checkpoint that is there.
  void protect_saved(int64_t step) { protected_step_ = step; }

  // With on_each_node: every node has the checkpoint of this step. A run goes on from what all of
  // them have: it outlives save_total_limit until this is said of a later one, and only then does
  // a new best release the one before.
  void all_nodes_have(int64_t step);

  // Waits for the save under way. Was the last one committed? (True when there was none.) Throws
  // CommError where it was not because the folder is another run's by now.
  bool finish();
  int64_t last_step() const { return step_; }  // that save() was called for
  // Has a write that was given up still not returned? finish() looks again.
  bool hangs() const { return hangs_; }
  // Step of the newest commit of this store that finish() or a later save has seen.
  std::optional<int64_t> last_committed() const { return last_committed_; }

  // Writes the model and the texts into the output folder itself; optimizer entries are ignored.
  // Waits; throws IoError on every rank when it fails. Tried also where a checkpoint hangs.
  void save_model(const Contents& contents);

 private:
  struct Writing;  // what the thread of a save works on
  using Write = std::function<std::string(const Job&, Exchange&)>;

  void begin(const Contents& contents, Staging::Wish wish, int64_t step, Write write);
  bool wait_for(const std::function<bool(std::chrono::milliseconds)>& done);
  void give_up(const std::string& why);
  void refuse(int64_t step);
  std::string end_of_writer();
  void leave_behind();
  std::unique_ptr<Exchange> make_exchange(int64_t step);
  CommitOptions commit_options(int64_t step) const;
  void check_fence() const;

  StoreOptions options_;
  skein::Store& store_;
  int64_t best_step_ = -1;  // protected once it is committed
  int64_t protected_step_ = -1;
  int64_t common_step_ = -1;  // that all nodes have
  int64_t num_saves_ = 0;

  std::shared_ptr<Writing> writing_;  // shared with the thread, which may outlive this
  bool is_open_ = false;              // a save that finish() has not seen the end of
  bool hangs_ = false;                // one that was given up, whose thread has not returned,
  int64_t hung_step_ = 0;             // and its step
  std::future<std::string> written_;  // by the thread: why it failed; empty: well
  std::thread thread_;
  int64_t step_ = 0;
  std::string failure_;
  std::optional<int64_t> last_committed_;
};

}  // namespace skein::checkpoint
