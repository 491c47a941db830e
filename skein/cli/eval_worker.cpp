// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "skein/cli/eval_flags.h"
#include "skein/cli/rank_run.h"
#include "skein/train/eval_model.h"

namespace skein::cli {
namespace {

void print(const train::Evaluation& result, bool json) {
  if (json) {
    nlohmann::ordered_json row = {{"eval_loss", *result.loss}};
    if (result.perplexity) row["perplexity"] = *result.perplexity;
    for (const auto& [name, value] : result.metrics) row[name] = value;
    row["num_tokens"] = result.num_targets;
    row["num_samples"] = result.num_samples;
    fmt::print("{}\n", row.dump());
  } else {
    fmt::print("eval_loss   {:.6f}\n", *result.loss);
    if (result.perplexity) fmt::print("perplexity  {:.4f}\n", *result.perplexity);
    for (const auto& [name, value] : result.metrics) fmt::print("{:<11} {:.6f}\n", name, value);
    fmt::print("num_tokens  {}\nnum_samples {}\n", result.num_targets, result.num_samples);
  }
}

}  // namespace

int run_eval_rank(std::span<const std::string> arguments) {
  const auto flags = parse_eval_flags(arguments);
  const train::EvalOptions options{
      .model = flags.model, .run = flags.run, .batch = flags.batch_size, .dtype = flags.dtype};
  return run_rank({.body = [&](const config::Resolved&, train::World& world) {
    check_eval(flags);
    const auto result = train::evaluate_model(options, world);
    if (world.is_first()) print(result, flags.json);
    return 0;
  }});
}

}  // namespace skein::cli
