// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <utility>

#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
#include "skein/cli/launch_ranks.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/plan/disk_space.h"
#include "skein/plan/finetune.h"
#include "skein/plan/fit.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"
#include "skein/plan/steps/rollout_plan.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein train [CONFIG.yaml] [key=value ...] [--key value ...] [launch flags]\n"
    "\n"
    "Trains on this machine: one rank per visible GPU, else on the CPU. The same command "
    "continues\n"
    "a run that was stopped; --fresh starts over. `skein config show CONFIG.yaml` lists the keys.\n"
    "\n"
    "  --nproc-per-node N|auto|gpu|cpu   ranks to start on each machine\n"
    "  --num-gpus N                      the same, GPUs only\n"
    "  --max-restarts N                  start again from the last checkpoint after a failure\n"
    "  --log-dir DIR                     files for what the ranks print\n"
    "  -r, --redirects N  -t, --tee N    1 stdout, 2 stderr, 3 both: to files only, or also there\n"
    "  --local-ranks-filter 0,2          ranks to show on the terminal\n"
    "  --numa-binding node|socket|...    bind each rank to the processors near its GPU\n"
    "\n"
    "Several machines, the same command on each:\n"
    "  --nnodes N --node-rank K --master-addr HOST [--master-port PORT]\n"
    "  --secret-file FILE                32 bytes that all have; default: a file in output_dir\n"
    "or one command that starts them over ssh:\n"
    "  -H, --hostfile FILE               lines `host slots=N`\n"
    "  -i, --include, -e, --exclude      host:0,2@host2\n"
    "  --ssh-port PORT\n"
    "\n"
    "Under another launcher this command is one rank: torchrun --no-python, srun, mpirun,\n"
    "deepspeed --no_python, accelerate launch --no_python.\n"
    "\n"
    "SIGTERM, SIGUSR1 or Ctrl-C: save at most two steps later, exit with 75. Ctrl-C twice: at "
    "once.\n"
    "More: docs/launch.md, docs/exit_codes.md\n";

}  // namespace

int run_train_command(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  auto [split, early_stop] = begin_rank_command(arguments);
  check_flags(split.rest);
  RankJob job{.command = "train",
              .typed = {arguments.begin(), arguments.end()},
              .arguments = split.rest,
              .flags = split.flags,
              .resolved = config::load(split.rest)};
  plan::take_adapter_tokenizer(job.resolved);
  const auto& resolved = job.resolved;
  plan::check_given(resolved.config);
  config::check_output_folder(resolved);
  job.check_size = [&](int size) {  // ranks print it
    plan::samples_per_step(resolved.config, config::plan_batches(resolved, size));
  };
  job.check = plan::check_run;
  job.settle = plan::settle_autos;
  job.gives_up = true;
  job.check_space = [](const config::Resolved& seen, const plan::Machine& machine) {
    plan::check_disk(seen.config, machine.place);
    plan::check_offload_room(seen, machine);
  };
  job.prepare = [](const config::Resolved& seen, int size) {
    auto digest = plan::prepare_data(seen.config);
    plan::check_prepared(seen, size);
    return digest;
  };
  return launch_ranks(job, std::move(early_stop));
}

}  // namespace skein::cli
