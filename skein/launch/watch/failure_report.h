// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What happened, in one report: which rank failed first, how, where in the run, what is saved and
// how to go on.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "skein/launch/process/child.h"
#include "skein/launch/watch/diagnosis.h"

namespace skein::launch {

struct FailureReport {
  int rank = 0;
  int size = 1;
  std::string host;
  int64_t pid = 0;
  ChildEnd end;
  bool oom_counted = false;        // the cgroup's counter of OOM kills rose
  std::optional<Verdict> verdict;  // why the launcher ended the run itself
  std::string message;             // the rank's own, from its board
  board::BoardView board;
  std::string last_calls;  // of diagnosis
  std::string saved;       // last committed checkpoint; empty: none
  std::string logs;        // file to look at; empty: none
  std::string command;     // that continues the run
  std::string remains;     // processes that could not be ended; empty: none
  std::string decision;    // "restarting (1 of 3)", "the other ranks were ended"
};

// Several lines, the first of which says it all; what is not known is left out. No trailing
// newline, and no "error: " (the log has it).
std::string to_text(const FailureReport& report);
// torchrun's error file: {"message": {"message": …, "extraInfo": {…}}}.
std::string to_error_json(const FailureReport& report);
// Writes what TORCHELASTIC_ERROR_FILE names, if it is set. Never throws.
void write_error_file(const FailureReport& report);
void write_error_file(const std::string& message);

// This process's memory cgroup's count of OOM kills, version 1 or 2; its parents' where it shows
// none itself; nothing when there is none.
std::optional<int64_t> oom_kills(const std::filesystem::path& membership = "/proc/self/cgroup",
                                 const std::filesystem::path& mount = "/sys/fs/cgroup");

// Relative to the working directory where that is shorter.
std::string shorter_path(const std::filesystem::path& path);

// How often has the same step failed? Kept in OUTPUT_DIR/failures.json over restarts and starts.
// A file that cannot be read counts as none, one that cannot be written gives a warning.
class FailureCount {
 public:
  explicit FailureCount(const std::filesystem::path& output);
  // Counts one more failure of the step that followed `step`; returns how often in a row.
  int add(int64_t step, const std::vector<int64_t>& samples);
  void clear();  // the run went on

 private:
  std::filesystem::path file_;  // empty: its place is taken
  int64_t step_ = -1;
  int count_ = 0;
};

}  // namespace skein::launch
