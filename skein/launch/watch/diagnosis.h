// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Who keeps the others waiting, and in what? A pure function of the ranks' boards.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "skein/board/board.h"

namespace skein::launch {

// What a rank's launcher knows of it besides its board.
struct RankView {
  board::BoardView board;
  std::string host;
  bool ended = false;        // the process is gone
  char process_state = 'R';  // of /proc/PID/stat: T or t is stopped, D blocked in the kernel
};

struct Limits {
  std::chrono::milliseconds collective{1'800'000};  // ddp_timeout
  std::chrono::milliseconds first_step{5'400'000};  // before any rank has finished a step
  std::chrono::milliseconds join{120'000};          // from start to the first call
  std::chrono::milliseconds heartbeat{4'000};       // 0: off. A stopped process is ended after it
  // CPU on one machine, ddp_timeout not given: max(10 s, 20 x p99 gap, 4 x longest gap) between
  // calls, once a step is done.
  bool adaptive = false;
  std::string_view key = "ddp_timeout";  // what a person changes to wait longer
};

enum class Trouble { kStopped, kLate, kMismatch, kMissing };

struct Verdict {
  Trouble trouble = Trouble::kLate;
  int rank = 0;      // to blame
  std::string text;  // one or more lines: rank, host, pid, phase, both calls
};

// Nothing when all goes well. A mismatch is reported when its calls have ended, or one of them has
// been under way for a second; a rank that reports progress is never late, nor are those that may
// wait for it. Where some wait too long, a rank without heartbeats is to blame before all others.
// Act on a verdict when it comes twice in a row: after a pause of the whole machine all ages are
// wrong for a moment.
std::optional<Verdict> diagnose(std::span<const RankView> ranks, const Limits& limits);

// What a letter of /proc/PID/stat means for a process that gives no sign of life.
const char* meaning_of_state(char state);

// After rank `dead` died: a mismatch if there is one, where it died, and who waited in what; empty
// if nothing is to be said.
std::string last_calls(std::span<const RankView> ranks, int dead);

}  // namespace skein::launch
