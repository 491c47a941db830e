// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does what the ranks print go? torchrun's --log-dir, --redirects, --tee and
// --local-ranks-filter.
//
// Files are LOG_DIR/attempt_K/RANK/stdout.log, stderr.log, error.json, where RANK counts over all
// nodes (they may share LOG_DIR). A teed stream runs through a pipe that the launcher's loop reads;
// a redirected one goes straight to its file. Files grow over starts, nothing is overwritten. A
// rank that is filtered out shows nothing on the terminal, its files are written as asked.

#include <poll.h>

#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/launch/placement/launch_plan.h"

namespace skein::launch {

// What a child gets instead of the launcher's streams; -1: the launcher's own.
struct ChildStreams {
  int out = -1;
  int error = -1;
  std::string error_file;  // TORCHELASTIC_ERROR_FILE of the rank; empty: none
};

// Does what some rank says on stderr not reach the terminal?
bool hides_errors(const OutputPlan& plan, int local_ranks);

class Outputs {
 public:
  // `attempt` is the generation. The plan has a log_dir when it redirects or tees. Throws IoError
  // when a file cannot be made.
  Outputs(const OutputPlan& plan, int first_rank, int local_ranks, int attempt);
  ~Outputs();  // copies what is left
  Outputs(const Outputs&) = delete;

  ChildStreams streams_of(int local_rank) const;
  void close_child_ends();  // once all children are started
  void add_to(std::vector<pollfd>& entries) const;
  // Never waits. A terminal that takes nothing loses lines (one line says how many), and a full
  // disk loses the file's (one warning): ranks go on.
  void copy_ready();
  // What a user should look at for this rank; empty when nothing was written to a file.
  std::string where(int local_rank) const;

 private:
  struct Stream;
  struct Rank;  // its two streams and its folder
  std::vector<Rank> ranks_;
};

}  // namespace skein::launch
