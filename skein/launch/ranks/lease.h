// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keeps two runs from writing into one output folder.
//
// OUTPUT_DIR/.skein-lease is locked (an open file description lock, which the ranks inherit: it
// lasts as long as any process of the run) and names its holder. For another machine, which locks
// may not reach, the file's heartbeat decides: it is touched every 5 s and stale after 30 s,
// measured by the file system's own clock.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "skein/core/file.h"

namespace skein::launch {

struct LeaseTimes {
  std::chrono::milliseconds beat{5'000};
  std::chrono::milliseconds stale{30'000};
  std::chrono::milliseconds ranks_end{
      10'000};  // how long ranks of a killed launcher are waited for
};

class Lease {
 public:
  // Makes the folder if need be. Throws UserError that names host, pid and start of the run that
  // holds it, and what to do; IoError when the folder cannot be written.
  explicit Lease(const fs::path& output, const LeaseTimes& times = {});
  ~Lease();  // gives it back, unless a child still holds the lock: then with that child's end
  Lease(const Lease&) = delete;

  // To be inherited by the ranks.
  int descriptor() const;
  // Why this run must end: another machine took the folder over while this one was frozen.
  std::optional<std::string> lost() const;

 private:
  class Beat;  // a thread that touches the file
  std::unique_ptr<Beat> beat_;
};

}  // namespace skein::launch
