// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/cli/launch_ranks.h"
#include "skein/cli/verify/flags.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/plan/finetune.h"
#include "skein/plan/fit.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein verify-strategy [CONFIG.yaml] [key=value ...] [launch flags] [--steps 5] [--json]\n"
    "\n"
    "Makes the first steps of a run under ddp, zero1, zero2 and zero3, each with offload off and\n"
    "on, from the same weights over the same data, and prints losses, gradient norms and the\n"
    "largest relative difference of every pair. 0: all are within the tolerance; 1: they are not.\n"
    "Nothing is saved, and a checkpoint in output_dir is not looked at. nvme_path=FOLDER adds\n"
    "variants that offload to that disk.\n"
    "\n"
    "  --steps 5           steps of each\n"
    "  --strategies LIST   these alone: zero2,zero3\n"
    "  --tolerance X       for losses, norms and parameters of all pairs, instead of what the "
    "type\n"
    "                      of the weights allows (bit-equal where sums have the same order)\n"
    "  --json              one JSON object, with sums and a digest of the weights\n"
    "\n"
    "Launch flags are those of `skein train`. More, and what the tolerance is: docs/commands.md\n";

// What this command does not do: save, continue, evaluate, choose a strategy. A batch that `auto`
// finds is to fit with the one that needs most.
config::Resolved without_saving(config::Resolved resolved) {
  auto& config = resolved.config;
  config.checkpoint = {.resume_from_checkpoint = "false"};
  config.eval = {};
  config.parallel.distributed_strategy = config::Strategy::kDdp;
  config.offload.offload_optimizer = config.offload.offload_param = config::Offload::kNone;
  config.offload.offload_ratio = 1;
  // Here they have one: the variants with nvme.
  std::erase_if(resolved.notes, [](const std::string& note) {
    return note.find("'nvme_") != std::string::npos &&
           note.find("has no effect: nothing is offloaded to nvme") != std::string::npos;
  });
  return resolved;
}

// One sampled token that differs, and all that is learned behind it does.
void refuse_rollouts(const config::RunConfig& config) {
  if (!config::is_online(config.stage)) return;
  throw UserError(fmt::format(
      "skein verify-strategy compares what strategies learn from the same data, and stage: {} "
      "writes its own: give the stage that the model was fine-tuned with, as stage=sft and its "
      "train_file",
      config::to_text(config.stage)));
}

}  // namespace

int run_verify_command(std::span<const std::string> arguments) {
  if (arguments.empty() || asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  auto [split, early_stop] = begin_rank_command(arguments);
  RankJob job{.command = "verify-strategy",
              .typed = {arguments.begin(), arguments.end()},
              .arguments = split.rest,
              .flags = split.flags,
              .resolved = without_saving(config::load(parse_verify_flags(split.rest).rest))};
  plan::take_adapter_tokenizer(job.resolved);
  const auto& resolved = job.resolved;
  plan::check_model_given(resolved.config, "skein verify-strategy");
  refuse_rollouts(resolved.config);
  job.check_size = [&](int size) { config::plan_batches(resolved, size); };
  job.check = plan::check_run;
  job.settle = plan::settle_autos;
  job.prepare = [](const config::Resolved& seen, int size) {
    auto digest = plan::prepare_data(seen.config);
    plan::check_prepared(seen, size);
    return digest;
  };
  return launch_ranks(job, std::move(early_stop));
}

}  // namespace skein::cli
