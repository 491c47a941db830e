// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The reward program of a rank: started when it is first needed, asked batch by batch, started
// again when it has ended.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/rewards/child_lines.h"
#include "skein/rewards/protocol.h"
#include "skein/rewards/row.h"
#include "skein/rewards/scorer.h"

namespace skein::rewards {

class Program {
 public:
  explicit Program(const Options& options);

  // What it has said first; starts it. Throws UserError when it does not become ready, and when it
  // would have to be started more often than it may.
  const Ready& ready();

  struct Outcome {
    Answer answer;
    std::string failure;  // why there is none, as a whole sentence; or empty
    bool is_misplaced = false;
  };
  // One for each. Throws as ready() does, and Stopped.
  std::vector<Outcome> ask(std::span<const Completion> completions);

 private:
  // "reward program 'python3 rewards.py': WHAT".
  std::string told(const std::string& what) const;
  std::string told(const Completion& completion, const std::string& what) const;
  std::string requests(std::span<const Completion> completions);
  // Sends, takes what comes, and starts the program again where it has ended and may be.
  std::optional<ChildTrouble> exchange(const std::string& text, size_t count,
                                       std::vector<std::string>& lines);
  Outcome read(const Completion& completion, const std::string& line, uint64_t id) const;
  void drop(const std::string& why);

  const Options options_;
  std::optional<ChildLines> child_;
  std::optional<Ready> ready_;
  RowReader rows_;
  uint64_t next_batch_ = 0, next_id_ = 0;
  int num_starts_ = 0;
  std::string last_trouble_;
};

}  // namespace skein::rewards
