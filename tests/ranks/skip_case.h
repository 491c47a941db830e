// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Two ranks that skip different blocks of a small net, against plain autograd.
//
// The net has an embedding, six blocks of different sizes and an untied head. Each step is a pair
// of subsets, one per rank: the blocks that it leaves out. Gradients must be the sum of what plain
// autograd finds for the ranks, whatever they skip; ranks whose collectives differ do not get that
// far. Runs on ranks that are threads and on ranks that are processes.

#include <string>
#include <utility>
#include <vector>

#include "skein/comm/group.h"

namespace skein::ranks {

enum class Frozen { kNothing, kBeginning, kAllBlocks, kMiddle };
inline constexpr int kNumFrozen = 4;

enum class Uses {
  kOnce,
  kWithoutBackward,  // ranks that skip an odd number of blocks run no backward
  kTwiceInARow,      // every second block
  kLooped,           // blocks 1 to 3 again, behind all others
  kTwoPasses         // with a reference's pass between them
};
inline constexpr int kNumUses = 5;

using Subset = unsigned;  // bit i: block i is skipped
inline constexpr Subset kNumSubsets = 64;
using SkipPair = std::pair<Subset, Subset>;  // of ranks 0 and 1

struct SkipCase {
  int stage = 0;
  Frozen frozen = Frozen::kNothing;
  Uses uses = Uses::kOnce;
  bool recompute = false;
  int64_t micro_batches = 1;

  std::string text() const;  // words that parse() reads back
  static SkipCase parse(const std::string& text);
};

// One step per pair. Returns what is wrong, a line each: nothing when all is well. Every rank of
// `world` (two) calls it.
std::string run_skip_case(const SkipCase& test_case, const std::vector<SkipPair>& pairs,
                          comm::Group& world);

// The same on threads.
std::string run_skip_case(const SkipCase& test_case, const std::vector<SkipPair>& pairs);

// "skip CASE / PAIRS": what a rank that is a process is told, and what it answers.
std::string skip_text(const SkipCase& test_case, const std::vector<SkipPair>& pairs);
std::string run_skip_text(const std::string& text, comm::Group& world);

}  // namespace skein::ranks
