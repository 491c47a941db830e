// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/strategy_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "skein/config/syntax/values.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

config::Strategy strategy_of(const std::string& word) {
  for (const auto& [text, value] : config::spellings_of(config::Strategy{}).known) {
    if (word == text && value != config::Strategy::kAuto) return value;
  }
  throw UserError(fmt::format(
      "--strategies: '{}' is none of ddp, zero1, zero2, zero3 (with commas between them)", word));
}

}  // namespace

std::vector<config::Strategy> read_strategies(const std::string& text) {
  std::vector<config::Strategy> strategies;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const auto strategy = strategy_of(word);
    if (std::ranges::count(strategies, strategy) == 0) strategies.push_back(strategy);
  }
  return strategies;
}

}  // namespace skein::cli
