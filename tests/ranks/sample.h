// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which cases of a matrix does this run take?
//
// All in `make test-long` (SKEIN_LONG=1). Else a sample, drawn by SKEIN_SEED, which
// tools/run_tests.py chooses and prints: every night another one, and each can be drawn again.

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace skein::ranks {

template <typename Case>
std::vector<Case> sample(std::vector<Case> cases, size_t count) {
  if (std::getenv("SKEIN_LONG") != nullptr || cases.size() <= count) return cases;
  const char* seed = std::getenv("SKEIN_SEED");
  std::mt19937_64 draw(seed == nullptr ? 0 : std::stoull(seed));
  std::vector<Case> drawn;
  std::ranges::sample(cases, std::back_inserter(drawn), static_cast<ptrdiff_t>(count), draw);
  return drawn;
}

}  // namespace skein::ranks
