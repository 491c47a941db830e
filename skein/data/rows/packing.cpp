// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "skein/core/error.h"

namespace skein::data {
namespace {

std::vector<int32_t> longest_first(std::span<const int64_t> lengths) {
  SKEIN_CHECK(lengths.size() <= INT32_MAX, "items are numbered in 32 bits");
  std::vector<int32_t> items(lengths.size());
  std::iota(items.begin(), items.end(), 0);
  std::ranges::stable_sort(items, std::ranges::greater(),
                           [&](int32_t item) { return lengths[static_cast<size_t>(item)]; });
  return items;
}

}  // namespace

std::span<const int32_t> Groups::group(int64_t index) const {
  const int32_t begin = index == 0 ? 0 : ends[static_cast<size_t>(index - 1)];
  return std::span(items).subspan(static_cast<size_t>(begin),
                                  static_cast<size_t>(ends[static_cast<size_t>(index)] - begin));
}

Groups best_fit(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<std::vector<int32_t>> packs;
  std::set<std::pair<int64_t, size_t>> rooms;  // what is left in each pack that is not full
  for (const int32_t item : longest_first(lengths)) {
    const int64_t length = lengths[static_cast<size_t>(item)];
    SKEIN_CHECK(1 <= length && length <= capacity, fmt::format("{} in {}", length, capacity));
    auto found = rooms.lower_bound({length, 0});
    const bool is_new = found == rooms.end();
    const size_t pack = is_new ? packs.size() : found->second;
    const int64_t room = (is_new ? capacity : found->first) - length;
    if (is_new) {
      packs.emplace_back();
    } else {
      rooms.erase(found);
    }
    packs[pack].push_back(item);
    if (room > 0) rooms.emplace(room, pack);
  }
  Groups groups;
  groups.items.reserve(lengths.size());
  for (const auto& pack : packs) {
    groups.items.insert(groups.items.end(), pack.begin(), pack.end());
    groups.ends.push_back(static_cast<int32_t>(groups.items.size()));
  }
  return groups;
}

Groups sorted_runs(std::span<const int64_t> lengths, int64_t run) {
  SKEIN_CHECK(run > 0, "a run has items");
  Groups groups{.items = longest_first(lengths), .ends = {}};
  const auto count = std::ssize(groups.items);
  for (int64_t end = run; end < count + run; end += run) {
    groups.ends.push_back(static_cast<int32_t>(std::min(end, count)));
  }
  return groups;
}

}  // namespace skein::data
