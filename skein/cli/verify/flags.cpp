// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/verify/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
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

VerifyFlags parse_verify_flags(std::span<const std::string> arguments) {
  VerifyFlags result;
  std::string strategies;
  FlagSet flags("skein verify-strategy");
  flags.add("steps", result.steps, /*least=*/1);
  flags.add("strategies", strategies);
  flags.add("tolerance", result.tolerance);
  flags.add("json", result.json);
  result.rest = flags.read(arguments, FlagSet::Unknown::kKeep);
  check_flags(result.rest, {"steps", "strategies", "tolerance", "json"});
  if (result.tolerance && !(*result.tolerance >= 0 && std::isfinite(*result.tolerance))) {
    throw UserError(fmt::format("--tolerance must be 0 or above, not {:g}", *result.tolerance));
  }
  std::istringstream words(strategies);
  for (std::string word; std::getline(words, word, ',');) {
    const auto strategy = strategy_of(word);
    if (std::ranges::count(result.strategies, strategy) == 0) result.strategies.push_back(strategy);
  }
  return result;
}

}  // namespace skein::cli
