// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does the time of a step go? Host clocks, one phase at a time. The rank's board shows the
// phase to its launcher, and a trace shows all of them.
//
// On a GPU the host runs ahead: kernels are counted where the host waits for them, which is mostly
// `optimizer` (the norm is read there) and `data`.

#include <array>
#include <chrono>
#include <utility>

#include "skein/board/board.h"
#include "skein/trace/trace.h"

namespace skein::train {

using board::Phase;

// Those that a step is made of, in the order in which they are recorded.
inline constexpr Phase kStepPhases[] = {Phase::kData,     Phase::kRollout,  Phase::kReward,
                                        Phase::kForward,  Phase::kBackward, Phase::kOptimizer,
                                        Phase::kEvaluate, Phase::kSave,     Phase::kOther};
// Only steps that sample have them.
inline bool is_of_rollouts(Phase phase) {
  return phase == Phase::kRollout || phase == Phase::kReward;
}

class Phases {
 public:
  // Ends the phase under way.
  void enter(Phase phase) {
    const auto now = Clock::now();
    seconds_[static_cast<size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    if (began_) trace::add("phase", name_of(current_), began_);
    current_ = phase;
    since_ = now;
    began_ = trace::now(trace::Clock::kDevice, trace::Weight::kEssential);
    board::enter_phase(phase);
  }
  // Seconds by phase since the last call; static_cast<size_t>(phase) is the index.
  std::array<double, board::kNumPhases> take() {
    enter(current_);
    return std::exchange(seconds_, {});
  }

 private:
  using Clock = std::chrono::steady_clock;
  Phase current_ = Phase::kOther;
  Clock::time_point since_ = Clock::now();
  trace::Point began_;  // the same in a trace
  std::array<double, board::kNumPhases> seconds_{};
};

}  // namespace skein::train
