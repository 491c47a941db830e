// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include "skein/cli/eval_flags.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/launch_ranks.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/data/prepare.h"
#include "skein/plan/run_data.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein eval MODEL --dataset F [--stage pt|sft|rm] [--block-size N] [--batch-size 8]\n"
    "                 [--max-samples N] [--tokenizer FOLDER|bytes] [--bad-lines stop|skip]\n"
    "                 [--data-cache-dir DIR] [--dtype auto|float32|bfloat16|float16|float64]\n"
    "                 [--device auto|cpu|cuda] [--json]\n"
    "                 [--template NAME | --chat-template F] [--cutoff-len N] [--train-on-prompt]\n"
    "                 [--mask-history] [--adapter DIR | --base DIR] [launch flags]\n"
    "\n"
    "Mean loss per token and perplexity of a model folder over a file (.txt, .jsonl with "
    "\"text\",\n"
    ".bin), a comma-separated list of files, or a folder; every sample once. Data to stdout.\n"
    "Rows (.jsonl or .json with conversations, prompts, instructions) are measured as `stage: "
    "sft`\n"
    "trains on them: with the model's chat template, and only what it would learn. A .jsonl whose\n"
    "rows are all texts is text, unless --stage says sft. A reward model is measured over pairs "
    "of\n"
    "answers (chosen, rejected): loss, accuracy, margin, scores.\n"
    "--adapter is a LoRA adapter as PEFT writes it, computed beside MODEL; where MODEL is one\n"
    "itself, --base is its base, if not where it says.\n"
    "--dtype auto: bfloat16 where the files have 16 bits and the GPU computes in it, else "
    "float32.\n"
    "Runs on one rank per visible GPU, else on the CPU; --nproc-per-node and all other launch\n"
    "flags are those of `skein train --help`. --batch-size counts rows per rank.\n";

std::string prepare(const config::RunConfig& run) {
  for (const auto& note : eval_sources(run).notes) log_info("note: {}", note);
  if (!plan::trains_on_rows(run)) {
    return data::prepare(run.data, *text::open_codec(run.model), data::Split::kEval).digest;
  }
  const auto tokens = plan::open_tokens(run);
  const auto rows =
      data::open_eval_rows(plan::rows_options(run, tokens, *plan::vocabulary_of(run)));
  data::log_labels(rows, data::Split::kEval, tokens.audit,
                   num_threads(run.data.preprocessing_num_workers));
  return rows.source->prepared().digest;
}

}  // namespace

int run_eval_command(std::span<const std::string> arguments) {
  if (arguments.empty() || asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  auto [split, early_stop] = begin_rank_command(arguments);
  RankJob job{.command = "eval",
              .typed = {arguments.begin(), arguments.end()},
              .arguments = split.rest,
              .flags = split.flags,
              .resolved = {}};
  const auto flags = parse_eval_flags(split.rest);
  job.resolved.config.parallel.device = flags.device;
  job.check = [&](const config::Resolved&, int, const plan::Place&) { check_eval(flags); };
  job.prepare = [&](const config::Resolved&, int) { return prepare(flags.run); };
  return launch_ranks(job, std::move(early_stop));
}

}  // namespace skein::cli
