// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Numbers that each are one rank's alone, and 0 elsewhere, made known to all ranks.

#include <algorithm>
#include <vector>

#include "skein/comm/group.h"

namespace skein::comm {

// Exact: whoever has a number is the only one that adds to it. In parts, since every rank receives
// those of all others. Collective.
inline void share_numbers(std::vector<double>& numbers, Group& group) {
  constexpr size_t kPart = size_t{1} << 16;
  for (size_t begin = 0; begin < numbers.size(); begin += kPart) {
    const auto end = std::min(numbers.size(), begin + kPart);
    const auto at = [&](size_t place) { return numbers.begin() + static_cast<ptrdiff_t>(place); };
    std::ranges::copy(group.sum(std::vector<double>(at(begin), at(end))), at(begin));
  }
}

}  // namespace skein::comm
