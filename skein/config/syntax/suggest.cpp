// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/suggest.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace skein::config {
namespace {

// Optimal string alignment: insert, delete, replace, or swap two neighbours, each costs one.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::optional<size_t> most_slips) {
  constexpr size_t kMost = 3;
  const size_t limit = most_slips.value_or(std::max<size_t>(1, word.size() / 3));
  std::set<std::pair<size_t, std::string>> near;
  for (const auto& candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance <= limit) near.emplace(distance, candidate);
  }
  // Beside a slip of one letter, what needs three is no help.
  std::erase_if(near, [&, best = near.empty() ? 0 : near.begin()->first](const auto& entry) {
    return entry.first > best + 1;
  });
  std::string text;
  size_t written = 0;
  const size_t count = std::min(near.size(), kMost);
  for (const auto& [distance, candidate] : near) {
    if (written == count) break;
    text += written == 0 ? "; did you mean '" : written + 1 == count ? " or '" : ", '";
    text += candidate + "'";
    ++written;
  }
  return text.empty() ? text : text + "?";
}

}  // namespace skein::config
