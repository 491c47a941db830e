// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/train_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "skein/cli/words.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/data/prepare.h"
#include "skein/launch/detect.h"
#include "skein/launch/launcher.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein train [CONFIG.yaml] [key=value ...] [--key value ...] [launch flags]\n"
    "\n"
    "Trains on this machine: one rank per visible GPU, else on the CPU. The same command "
    "continues\n"
    "a run that was stopped; --fresh starts over. `skein config show CONFIG.yaml` lists the keys.\n"
    "\n"
    "  --nproc-per-node N|auto|gpu|cpu   ranks to start\n"
    "  --num-gpus N                      the same, GPUs only\n"
    "\n"
    "SIGTERM, SIGUSR1 or Ctrl-C: finish the step, save, exit with 75. Ctrl-C twice: stop at once.\n"
    "More: docs/launch.md, docs/exit_codes.md\n";

// skein-worker links LibTorch and lies beside this program.
std::vector<std::string> worker_command(const std::vector<std::string>& rest) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {(self.parent_path() / "skein-worker").string(), "train"};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

launch::LaunchPlan plan_launch(launch::LaunchFlags flags, const config::ParallelConfig& parallel) {
  const auto device = parallel.device;
  if (!parallel.distributed) {
    if (flags.nproc_per_node || flags.num_gpus) {
      throw UserError(
          "distributed: false means one rank; drop it, or the flag that asks for ranks");
    }
    flags.nproc_per_node = "1";
  }
  return launch::detect(
      {.flags = std::move(flags),
       .environment = launch::read_environment(),
       .hardware = launch::look_at_hardware(/*ask_gpus=*/device != config::Device::kCpu),
       .device = device,
       .cuda_build = SKEIN_HAS_CUDA});
}

// Before any rank starts: one message instead of one per rank.
void check_given(const config::RunConfig& config) {
  const auto need = [](bool given, const char* what) {
    if (!given) throw UserError(fmt::format("skein train needs {}", what));
  };
  need(!config.model.model_name_or_path.empty(),
       "model_name_or_path=FOLDER, the folder with the model's config.json");
  need(!config.data.train_file.empty() || !config.data.train_file_dir.empty(),
       "train_file=FILE (or train_file_dir=FOLDER), the text to train on");
  need(!config.checkpoint.output_dir.empty() || !config.checkpoint.experiment_name.empty(),
       "output_dir=FOLDER (or experiment_name=NAME), where to save");
}

}  // namespace

int run_train_command(std::span<const std::string> arguments) {
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    fmt::print("{}", kUsage);
    return 0;
  }
  const auto split = launch::split_launch_flags(arguments);
  check_flags(split.rest, {"nproc-per-node", "num-gpus"});
  const auto resolved = config::load(split.rest);
  check_given(resolved.config);
  for (const auto& note : resolved.notes) log_info("note: {}", note);
  const auto plan = plan_launch(split.flags, resolved.config.parallel);
  for (const auto& warning : plan.warnings) log_warning("{}", warning);
  config::plan_batches(resolved, plan.local_ranks);  // refuses what does not close; ranks print it
  log_info("launch: {}, OMP_NUM_THREADS={}", plan.summary, plan.omp_num_threads);
  data::prepare_run(resolved.config);  // once, before any process group exists
  return launch::launch(plan, worker_command(split.rest));
}

}  // namespace skein::cli
