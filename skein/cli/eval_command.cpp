// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include "skein/cli/eval_flags.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/launch_ranks.h"
#include "skein/core/log.h"
#include "skein/data/prepare.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein eval MODEL --dataset F [--block-size N] [--batch-size 8] [--max-samples N]\n"
    "                 [--tokenizer FOLDER|bytes] [--bad-lines stop|skip] [--data-cache-dir DIR]\n"
    "                 [--dtype auto|float32|bfloat16|float64] [--device auto|cpu|cuda] [--json]\n"
    "                 [--adapter DIR | --base DIR] [launch flags]\n"
    "\n"
    "Mean loss per token and perplexity of a model folder over a file (.txt, .jsonl with "
    "\"text\",\n"
    ".bin), a comma-separated list of files, or a folder; every sample once. Data to stdout.\n"
    "--adapter is a LoRA adapter as PEFT writes it, computed beside MODEL; where MODEL is one\n"
    "itself, --base is its base, if not where it says.\n"
    "Runs on one rank per visible GPU, else on the CPU; --nproc-per-node and all other launch\n"
    "flags are those of `skein train --help`. --batch-size counts rows per rank.\n";

}  // namespace

int run_eval_command(std::span<const std::string> arguments) {
  if (arguments.empty() || asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  const auto split = begin_rank_command(arguments);
  RankJob job{.command = "eval",
              .typed = {arguments.begin(), arguments.end()},
              .arguments = split.rest,
              .flags = split.flags,
              .resolved = {}};
  const auto flags = parse_eval_flags(split.rest);
  job.resolved.config.parallel.device = flags.device;
  job.check = [&](int, const plan::Place&) { check_eval(flags); };
  job.prepare = [&](int) {
    for (const auto& note : data::find_files("--dataset", flags.data.eval_file).notes) {
      log_info("note: {}", note);
    }
    return data::prepare(flags.data, *text::open_codec(flags.model), data::Split::kEval).digest;
  };
  return launch_ranks(job);
}

}  // namespace skein::cli
