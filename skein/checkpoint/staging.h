// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The host memory that a save passes through.
//
// What is saved is laid out in one long line of bytes, which is cut into chunks. Chunks are copied
// in order into slots and handed to the writer in order. Where there is a slot for every chunk, all
// copies are issued at once and the caller goes on; where host memory is short, a slot takes its
// next chunk when the writer is done with it, and the caller's next update waits for the last.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "skein/checkpoint/files/writer.h"
#include "skein/tensor/copy_engine.h"

namespace skein::checkpoint {

// A tensor to be copied, and where it goes in the files.
struct Source {
  at::Tensor data;  // 1-D, contiguous, of the type that the file has
  uint64_t file = 0;
  uint64_t offset = 0;
};

// Methods are for the thread that trains but for those of PieceFlow, which are the writer's, and
// close().
class Staging final : public PieceFlow {
 public:
  // Setting `stop`, which outlives this, ends await() with a CommError.
  Staging(std::shared_ptr<tensor::CopyEngine> engine, const std::atomic<bool>& stop);
  ~Staging() override;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Allocates, on a thread of its own, what copies of these will need.
  void prepare(const std::vector<Source>& sources);
  void await_prepared();

  enum class Wish {
    kAllAtOnce,  // as many slots as there are chunks, where the budget allows
    kFewSlots,   // the caller waits anyway: what is there, or little
  };
  // Begins to copy. Returns what the writer is to write, in order; the bytes of a piece are there
  // when await() has returned for it. Nobody may change the sources before before_update().
  // `held`: the last piece is handed on after confirm() alone, when the caller has looked at what
  // was copied.
  std::vector<Piece> start(const std::vector<Source>& sources, Wish wish, bool held = false);
  void confirm();
  // Are copies under way that nobody has waited for?
  bool is_copying() const { return copying_; }
  // Has every copy been issued, or the save been closed? Waits for it, so long at most.
  bool issued_within(std::chrono::milliseconds longest);
  // What the caller issues from here on runs after the copies. Blocks the host only while slots are
  // too few.
  void before_update();

  // PieceFlow
  void await(size_t piece) override;
  void written(size_t piece) override;
  // The writer has ended, well or not, or was given up: nobody needs what is not yet copied.
  void close();

 private:
  // Neighbours in memory that are copied as one.
  struct Run {
    at::Tensor data;
    int64_t begin = 0;  // in the line of bytes
    int64_t end() const { return begin + static_cast<int64_t>(data.nbytes()); }
  };
  struct Layout {
    std::vector<Run> runs;
    std::vector<int64_t> begins;  // of each source
    int64_t bytes = 0;
  };
  static Layout lay_out(const std::vector<Source>& sources);
  int64_t num_chunks() const;
  void reserve(int64_t bytes, Wish wish);
  bool fill_slot(size_t index, int64_t bytes);
  void say_if_short(int64_t bytes, int64_t chunks);
  std::vector<Piece> cut_pieces(const std::vector<Source>& sources);
  void issue_next();
  void await_confirmed();

  std::shared_ptr<tensor::CopyEngine> engine_;
  const std::atomic<bool>& stop_;
  int64_t chunk_bytes_;
  std::vector<at::Tensor> slots_;
  int64_t most_slots_ = std::numeric_limits<int64_t>::max();  // less once memory has run out
  std::thread preparation_;
  bool said_short_ = false;

  // Of the save under way.
  Layout layout_;
  std::vector<int64_t> chunk_of_piece_;
  bool copying_ = false;
  size_t next_run_ = 0;  // the first that may reach into the next chunk
  std::mutex mutex_;     // guards what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<tensor::CopyEngine::Mark>>
      marks_;  // of the chunks that have been issued
  bool closed_ = true;
  bool confirmed_ = true;
};

}  // namespace skein::checkpoint
