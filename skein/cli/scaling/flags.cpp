// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/scaling/flags.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "skein/cli/flag_set.h"
#include "skein/cli/strategy_list.h"
#include "skein/core/error.h"
#include "skein/plan/hf_config.h"

namespace skein::cli {
namespace {

std::vector<int64_t> read_ranks(const std::string& text) {
  std::vector<int64_t> ranks;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size() || count < 1) {
      throw UserError(fmt::format(
          "--ranks: '{}' is no number of ranks, expected numbers with commas between them: 1,2,4",
          word));
    }
    ranks.push_back(count);
  }
  return ranks;
}

}  // namespace

ScalingFlags parse_scaling_flags(std::span<const std::string> arguments) {
  ScalingFlags result;
  std::string ranks, strategies = "ddp,zero1,zero2,zero3";
  FlagSet flags("skein bench scaling");
  flags.add("ranks", ranks);
  flags.add("strategies", strategies);
  flags.add("batch", result.batch, /*least=*/1);
  flags.add("tokens", result.tokens, /*least=*/2);
  flags.add("accumulation", result.accumulation, /*least=*/1);
  flags.add("steps", result.steps, /*least=*/1);
  flags.add("warmup", result.warmup);
  flags.add("rounds", result.rounds, /*least=*/1);
  flags.add("recompute", result.recompute);
  flags.add("dtype", result.dtype);
  flags.add("device", result.device);
  flags.add("json", result.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format(
        "skein bench scaling takes one MODEL folder, not {} (`skein bench --help`)", words.size()));
  }
  result.model = words.front();
  result.ranks = read_ranks(ranks);
  result.strategies = read_strategies(strategies);
  if (result.strategies.empty()) throw UserError("--strategies names none");
  return result;
}

void check_scaling(const ScalingFlags& flags) {
  const auto dimensions = plan::read_hf_config(flags.model).dimensions();
  if (dimensions.positions_are_learned && flags.tokens > dimensions.positions) {
    throw UserError(fmt::format("--tokens is {}, but the model knows {} positions", flags.tokens,
                                dimensions.positions));
  }
}

}  // namespace skein::cli
