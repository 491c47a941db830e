// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "skein/cli/detect_run.h"
#include "skein/cli/limits.h"
#include "skein/cli/words.h"
#include "skein/cli/worker_program.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/data/prepare.h"
#include "skein/launch/plan/interface.h"
#include "skein/launch/ranks/launcher.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/launch/remote/remote_start.h"
#include "skein/plan/disk_space.h"
#include "skein/plan/refusals.h"

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
    "SIGTERM, SIGUSR1 or Ctrl-C: finish the step, save, exit with 75. Ctrl-C twice: stop at once.\n"
    "More: docs/launch.md, docs/exit_codes.md\n";

using Words = std::vector<std::string>;

// skein-worker links LibTorch and lies beside this program.
Words worker_command(const Words& rest) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  Words command = {(self.parent_path() / "skein-worker").string(), "train"};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

// As it may be typed again.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'')
      text += "'\\''";
    else if (letter == '\n')
      text += "'$'\\n''";  // on one line: the report indents lines
    else
      text += letter;
  }
  return text + "'";
}

// The command without what belongs to its first start.
std::string continuing_command(std::span<const std::string> arguments) {
  Words words = {"skein", "train"};
  for (const auto& word : arguments) {
    if (word != "--fresh" && word != "fresh=true" && word != "--fresh=true") {
      words.push_back(quoted(word));
    }
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string prepare_data(const config::RunConfig& config) {
  const auto data = data::prepare_run(config);
  return data.eval ? data.train.digest + data.eval->digest : data.train.digest;
}

// By which of its addresses the other ranks reach this one.
std::string address_for(const launch::LaunchPlan& plan) {
  const auto& foreign = *plan.foreign;
  if (plan.local_addr) return *plan.local_addr;
  auto chosen = launch::route_to(foreign.master_addr);
  if (foreign.local_size == foreign.size) return chosen.address;
  // Debian gives a machine's own name 127.0.1.1, which means nothing to the others.
  for (const auto& interface : launch::list_interfaces()) {
    const bool loopback = interface.address.starts_with("127.") || interface.address == "::1";
    if (chosen.address == "127.0.1.1" && !loopback) chosen = interface;
  }
  log_info("launch: rank {} speaks with the others from {} ({})", foreign.rank, chosen.address,
           chosen.name);
  return chosen.address;
}

// Another launcher's rank: this process becomes skein-worker.
[[noreturn]] void become_rank(const launch::LaunchPlan& plan, Words rest, bool fresh) {
  const auto& foreign = *plan.foreign;
  const launch::RankEnvironment rank{.rank = foreign.rank,
                                     .size = foreign.size,
                                     .local_rank = foreign.local_rank,
                                     .local_size = foreign.local_size,
                                     .device = plan.device,
                                     .store_host = foreign.master_addr,
                                     .store_port = foreign.master_port,
                                     .interface = address_for(plan),
                                     .foreign = {.name = foreign.launcher,
                                                 .store_is_served = foreign.store_is_served,
                                                 .attempt = foreign.attempt},
                                     .gpu = foreign.gpu};
  for (const auto& [name, value] : launch::to_environment(rank, /*secret_descriptor=*/-1)) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  ::setenv("OMP_NUM_THREADS", plan.omp_num_threads.c_str(), /*overwrite=*/1);
  // As in launcher.cpp, so that a rank computes the same bits; what the user has set stays. c10d's
  // store would print a stack for each lost connection.
  for (const auto& [name, value] : {std::pair("MKL_DYNAMIC", "FALSE"),
                                    {"MKL_CBWR", "AUTO"},
                                    {"TORCH_CPP_LOG_LEVEL", "FATAL"}}) {
    ::setenv(name, value, /*overwrite=*/0);
  }
  // The launcher's restarts go on with what the first start has begun.
  if (fresh && foreign.attempt != "0") rest.push_back(kContinueWord);
  exec_worker("train", rest);
}

int start_hosts(const launch::LaunchPlan& plan, const launch::Environment& environment,
                const Words& rest) {
  launch::RemoteStartOptions options{.arguments = rest};
  for (const auto& [name, value] : launch::forwarded(environment)) options.variables[name] = value;
  return launch::start_remote(plan, options);
}

int start_ranks(const DetectedRun& run, const config::Resolved& resolved, const Words& rest,
                std::span<const std::string> arguments) {
  auto plan = run.launch;
  const auto& config = resolved.config;
  const bool one_cpu_machine = plan.nodes == 1 && plan.device == config::Device::kCpu;
  const auto text = config::to_yaml(resolved);
  launch::LaunchOptions options{.limits = limits_of(resolved, one_cpu_machine),
                                .output = config::output_folder(config.checkpoint),
                                .command = continuing_command(arguments),
                                .prepare =
                                    [&] {
                                      plan::check_disk(config, run.place());
                                      return prepare_data(config);
                                    },
                                .configuration_text = text,
                                .needs_shared_output = !config.checkpoint.save_on_each_node};
  const auto any = [](const std::vector<int>& bits) {
    return std::any_of(bits.begin(), bits.end(), [](int bit) { return bit != 0; });
  };
  if (!plan.output.log_dir && (any(plan.output.redirects) || any(plan.output.tees))) {
    plan.output.log_dir = options.output / "logs";
  }
  if (config.checkpoint.fresh) options.restart_words = {kContinueWord};
  if (plan.join_timeout) options.join_timeout = *plan.join_timeout;
  return launch::launch(plan, worker_command(rest), options);
}

}  // namespace

int run_train_command(std::span<const std::string> arguments) {
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    fmt::print("{}", kUsage);
    return 0;
  }
  // Whoever reads our output may go away (`| head`, a closed terminal): the run goes on. Ranks
  // inherit it.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a full disk
  const auto environment = launch::read_environment();
  if (const auto level = launch::asked_log_level(environment)) set_log_level(*level);
  const auto split = launch::split_launch_flags(arguments);
  check_flags(split.rest,
              {"nproc-per-node", "num-gpus", "nnodes", "node-rank", "master-addr", "master-port",
               "max-restarts", "hostfile", "include", "exclude", "log-dir", "redirects", "tee"});
  const auto resolved = config::load(split.rest);
  const auto& config = resolved.config;
  plan::check_given(config);
  const auto run = detect_run(split.flags, environment, config.parallel);
  const auto& plan = run.launch;
  if (plan.foreign) set_log_rank(plan.foreign->rank);
  for (const auto& note : resolved.notes) log_info("note: {}", note);
  for (const auto& warning : plan.warnings) log_warning("{}", warning);
  config::plan_batches(resolved, plan.size());  // refuses what does not close; ranks print it
  // The machines of a hostfile check for themselves: this one need not have their files.
  if (!plan.hosts.empty()) return start_hosts(plan, environment, split.rest);
  plan::check_run(config);
  const bool speaks = !plan.foreign || plan.foreign->rank == 0;
  if (speaks) {
    for (const auto& warning : plan::run_warnings(config, run.place())) log_warning("{}", warning);
  }
  log_info("launch: {}, OMP_NUM_THREADS={}", plan.summary, plan.omp_num_threads);
  if (const auto variables = launch::describe(environment); !variables.empty()) {
    log_info("variables: {}", variables);
  }
  if (plan.foreign) {
    if (speaks) plan::check_disk(config, run.place());
    become_rank(plan, split.rest, config.checkpoint.fresh);
  }
  return start_ranks(run, resolved, split.rest, arguments);
}

}  // namespace skein::cli
