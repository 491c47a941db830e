// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a rank doing right now? A page of shared memory per rank: the rank writes it, its
// launcher reads it, also after the rank has died or was stopped.
//
// The launcher makes the page (a memfd) and the rank inherits it; under a foreign launcher it is a
// file in the log folder. It holds the last 256 collectives, a heartbeat, the phase and step, the
// last sign of progress of long host work, the samples of the step, and the message of a failure.
// Writing costs a few stores; no call blocks.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"

namespace skein::board {

enum class Phase : uint32_t {
  kStarting,
  kJoining,
  kLoading,
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kRollout,  // the policy samples
  kReward,   // what it sampled is judged
  kEvaluate,
  kSave,
  kOther,
  kEnding
};
inline constexpr uint32_t kNumPhases = 13;
const char* name_of(Phase phase);

// One collective as its rank has issued it. Ranks that act together issue equal calls in one order.
struct Call {
  uint64_t sequence = 0;  // counts from 1 in each process
  std::string group;      // "world"
  std::string operation;  // "all_gather"
  std::string dtype;      // "float32"
  uint64_t count = 0;     // elements
  int64_t step = 0;       // under way, from 1; 0 before the first
  std::string site;       // "sharded.cpp:120"
  int64_t age_ms = 0;     // since it was issued
  bool done = false;
};
// "call #57, all_gather of 4096 float32 (step 12, sharded.cpp:120)"
std::string describe(const Call& call);
// Operation, count, dtype and group agree; step and site may differ.
bool same_call(const Call& left, const Call& right);

// A copy of a page, with ages instead of times: what crosses from node to node.
struct BoardView {
  int rank = 0;
  int64_t pid = 0;  // 0: the rank has not attached its page (yet)
  Phase phase = Phase::kStarting;
  int64_t step = 0;         // finished updates of the run
  int64_t steps_here = 0;   // of them those that this process has made
  int64_t phase_ms = 0;     // since the phase was entered
  int64_t beat_ms = 0;      // since the last heartbeat; the rank beats every 100 ms
  int64_t progress_ms = 0;  // since the last sign of work: a call issued or ended, a phase or step
                            // entered, or progress reported
  std::string progress;     // what long host work says of itself, "writing checkpoint-10"
  std::string message;      // of the failure that ends the rank
  bool out_of_memory = false;    // that failure is want of memory
  std::vector<int64_t> samples;  // of the step under way, at most 64
  uint64_t issued = 0;           // sequence number of the newest call
  std::vector<Call>
      calls;  // newest last; those still under way (the oldest 256) are never left out
  std::vector<int64_t> gaps_ms;  // between the ring's neighbouring calls, sorted: for adaptive
                                 // deadlines
};

// As one line of JSON of at most 256 KiB; decode_board() returns nothing for any other text.
std::string encode(const BoardView& view);
std::optional<BoardView> decode_board(const std::string& text);

struct Page;  // page.h

// The launcher's side.
class Board {
 public:
  // An anonymous file that can be inherited but not resized; closed on exec, unless handed over.
  explicit Board(int rank);
  // A foreign launcher's rank wrote it, on this machine. Throws IoError when it is no board.
  static Board open_file(const fs::path& path);
  int descriptor() const { return file_.descriptor(); }
  // At most `most` finished calls besides those under way. Safe at any time. Before the rank has
  // attached the page, ages count from the page's making.
  BoardView read(size_t most = 8) const;
  // The rank was stopped for so long, and has not gone on yet: no age grows by it, and the rank's
  // own Clock has not moved. Of a page that was made here.
  void forgive(std::chrono::nanoseconds paused);

 private:
  Board(File file, std::shared_ptr<const Page> page);
  File file_;
  std::shared_ptr<const Page> page_;
  std::shared_ptr<Page> made_here_;  // the same page, or none
};

// The rank's side: process-wide, nothing happens without an attached page. Thread-safe.
// Attaching starts the heartbeat. `descriptor` is the inherited page; it may be closed afterwards.
// Throws IoError when it is no page of this build.
void attach_board(int descriptor);
void attach_board_file(const fs::path& path, int rank);
bool has_board();
// The page of this process as others see it, for a rank that watches without a launcher.
// Would nothing that was learned get lost, had this rank to start again with less? In all that
// comes before its second update, but in what needs memory of its own.
inline bool can_start_with_less(const BoardView& board) {
  return board.steps_here == 0 && board.phase >= Phase::kLoading &&
         board.phase != Phase::kEvaluate && board.phase != Phase::kSave;
}

std::optional<BoardView> own_board(size_t most = 8);

// Returns the sequence number (0 without a page). A call is ended by any thread; one that failed is
// not: it is what the rank ends in.
uint64_t begin_call(std::string_view group, std::string_view operation, std::string_view dtype,
                    uint64_t count, std::string_view site);
void end_call(uint64_t sequence);
void enter_phase(Phase phase);
// At the beginning of a step; `step` counts the finished updates.
void set_board_step(int64_t step, std::span<const int64_t> samples);
// Long host work says that it goes on: keeps deadlines from ending the run.
void report_progress(std::string_view what);
void report_failure(std::string_view message);
void report_out_of_memory();  // the failure that ends the rank: one that takes less might do

// Long host work that cannot speak for itself: while this lives, the heartbeat reports progress as
// long as the process computes or moves bytes (more than a tenth of a core, or 64 KiB, per beat).
class HostWork {
 public:
  explicit HostWork(std::string_view what);
  ~HostWork();
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;
};

}  // namespace skein::board
