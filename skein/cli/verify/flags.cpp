// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/verify/flags.h"

#include <fmt/format.h>

#include <cmath>

#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
#include "skein/cli/strategy_list.h"
#include "skein/core/error.h"

namespace skein::cli {

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
  result.strategies = read_strategies(strategies);
  return result;
}

}  // namespace skein::cli
