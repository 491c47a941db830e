// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/slurm.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

constexpr size_t kMostHosts = 65536;
constexpr int kMost = 99'999'999;

UserError bad_list(std::string_view text, std::string_view origin, std::string_view expected) {
  return UserError(fmt::format("{}='{}' is no list of Slurm's (expected the form `{}`)", origin,
                               text, expected));
}

// Cuts at commas that are outside brackets.
std::vector<std::string_view> split_outside(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']') {
      --depth;
    }
  }
  return parts;
}

// One of `01-03` or `7`, with its leading zeros.
bool append_range(std::string_view range, std::vector<std::string>& out) {
  const auto dash = range.find('-');
  const auto low_text = range.substr(0, dash);
  const auto low = read_number(low_text, 0, kMost);
  const auto high =
      dash == std::string_view::npos ? low : read_number(range.substr(dash + 1), 0, kMost);
  if (!low || !high || *low > *high) return false;
  if (static_cast<size_t>(*high - *low) >= kMostHosts) return false;
  for (int i = *low; i <= *high; ++i) out.push_back(fmt::format("{:0{}}", i, low_text.size()));
  return true;
}

// `a[1-2]b[3]`: every combination, the last bracket running fastest.
bool expand_part(std::string_view part, std::vector<std::string>& out) {
  std::vector<std::string> names = {""};
  while (!part.empty()) {
    const auto open = part.find('[');
    for (auto& name : names) name += part.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = part.find(']', open);
    if (close == std::string_view::npos) return false;
    std::vector<std::string> numbers;
    for (const auto range : split_outside(part.substr(open + 1, close - open - 1))) {
      if (!append_range(range, numbers)) return false;
    }
    if (names.size() * numbers.size() > kMostHosts) return false;
    std::vector<std::string> next;
    for (const auto& name : names) {
      for (const auto& number : numbers) next.push_back(name + number);
    }
    names = std::move(next);
    part.remove_prefix(close + 1);
  }
  out.insert(out.end(), names.begin(), names.end());
  return out.size() <= kMostHosts &&
         std::none_of(names.begin(), names.end(), [](const auto& name) { return name.empty(); });
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view text, std::string_view origin) {
  std::vector<std::string> hosts;
  for (const auto part : split_outside(text)) {
    if (!expand_part(part, hosts)) throw bad_list(text, origin, "node[01-03,7],x");
  }
  return hosts;
}

std::vector<int> expand_counts(std::string_view text, std::string_view origin) {
  std::vector<int> counts;
  for (auto part : split_outside(text)) {
    int times = 1;
    const auto open = part.find("(x");
    if (open != std::string_view::npos && part.ends_with(')')) {
      const auto repeat = part.substr(open + 2, part.size() - open - 3);
      times = read_number(repeat, 1, static_cast<int>(kMostHosts)).value_or(0);
      part = part.substr(0, open);
    }
    const auto count = read_number(part, 1, kMost);
    if (!count || times == 0 || counts.size() > kMostHosts) {
      throw bad_list(text, origin, "4(x2),3");
    }
    counts.insert(counts.end(), static_cast<size_t>(times), *count);
  }
  return counts;
}

}  // namespace skein::launch
