// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does the time of a step go? Host clocks, one phase at a time. The rank's board shows the
// phase to its launcher.
//
// On a GPU the host runs ahead: kernels are counted where the host waits for them, which is mostly
// `optimizer` (the norm is read there) and `data`.

#include <array>
#include <chrono>
#include <utility>

#include "skein/board/board.h"

namespace skein::train {

enum class Phase { kData, kForward, kBackward, kOptimizer, kEvaluate, kSave, kOther };
inline constexpr size_t kNumPhases = 7;
inline constexpr std::array<const char*, kNumPhases> kPhaseNames = {
    "data", "forward", "backward", "optimizer", "evaluate", "save", "other"};

inline board::Phase on_board(Phase phase) {
  constexpr std::array<board::Phase, kNumPhases> kOnBoard = {
      board::Phase::kData,      board::Phase::kForward,  board::Phase::kBackward,
      board::Phase::kOptimizer, board::Phase::kEvaluate, board::Phase::kSave,
      board::Phase::kOther};
  return kOnBoard[static_cast<size_t>(phase)];
}

class Phases {
 public:
  // Ends the phase under way.
  void enter(Phase phase) {
    const auto now = Clock::now();
    seconds_[static_cast<size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    current_ = phase;
    since_ = now;
    board::enter_phase(on_board(phase));
  }
  // Seconds by phase since the last call.
  std::array<double, kNumPhases> take() {
    enter(current_);
    return std::exchange(seconds_, {});
  }

 private:
  using Clock = std::chrono::steady_clock;
  Phase current_ = Phase::kOther;
  Clock::time_point since_ = Clock::now();
  std::array<double, kNumPhases> seconds_{};
};

}  // namespace skein::train
