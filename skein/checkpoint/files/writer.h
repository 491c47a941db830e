// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One save, from bytes in host memory to a committed checkpoint (or an exported model).
//
// Runs on every rank, on any thread, and speaks to the other ranks only through the exchange. Rank
// 0 creates, commits and announces; the order of steps is docs/checkpoint_format.md.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "skein/checkpoint/files/exchange.h"
#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/core/file.h"

namespace skein::checkpoint {

// Bytes of one tensor file that this rank owns.
struct Piece {
  uint64_t file = 0;    // index into Job::files
  uint64_t offset = 0;  // in the file
  std::span<const std::byte> bytes;
};

// Pieces whose bytes come while the writer is at work, and go when it has written them.
class PieceFlow {
 public:
  virtual ~PieceFlow() = default;
  // Returns when the bytes of the piece with this index are there. Called for each, in order.
  virtual void await(size_t piece) = 0;
  // The bytes of this piece are on disk: their memory may be used again.
  virtual void written(size_t piece) = 0;
};

struct Job {
  // Names as is_file_name() takes them.
  std::vector<FileLayout> files;             // alike on all ranks
  std::vector<Piece> pieces;                 // of this rank; together the ranks' pieces cover all
  std::map<std::string, std::string> texts;  // whole files; rank 0's count
  PieceFlow* flow = nullptr;                 // none: all bytes are there
};

struct CommitOptions {
  fs::path output;
  int64_t step = 0;
  std::string token;
  int64_t save_total_limit = 0;  // 0: keep all
  bool rotates = true;           // false: what is beyond the limit stays until the next save
  std::vector<int64_t> protected_steps = {};  // not removed, whatever the limit
  // Asked right before the commit: throws when the folder is another run's by now. Empty: nobody
  // else can have it.
  std::function<void()> fence;
  RunConditions conditions;
};

// Where save_total_limit is set and the disk is full, both give up older checkpoints, oldest first,
// and try again; a file system that cannot reserve room may be full only later, in the middle of a
// write: then this save fails, and Exchange::room_made() says that another may not.

// Writes checkpoint-STEP, and removes older ones. Returns why it failed, empty when it was
// committed: the same on every rank that can reach the store. Rank 0 warns. Never throws.
std::string write_checkpoint(const Job& job, const CommitOptions& options, Exchange& exchange);

// Replaces the model files of `output` itself, one by one, and the texts. Returns as above.
std::string write_model(const Job& job, const CommitOptions& options, Exchange& exchange);

}  // namespace skein::checkpoint
