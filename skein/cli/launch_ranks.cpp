// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/launch_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "skein/cli/detect_run.h"
#include "skein/cli/limits.h"
#include "skein/cli/worker_program.h"
#include "skein/config/handover.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/process/inherited_bytes.h"
#include "skein/launch/ranks/launcher.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/launch/remote/remote_start.h"
#include "skein/plan/continuation.h"
#include "skein/plan/ladder.h"

namespace skein::cli {
namespace {

using Words = std::vector<std::string>;

// The words are for `ps`, and for commands that have flags instead of a configuration.
Words worker_command(const RankJob& job) {
  Words command = {worker_path().string(), job.command};
  command.insert(command.end(), job.arguments.begin(), job.arguments.end());
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
std::string continuing_command(const RankJob& job) {
  Words words = {"skein", job.command};
  for (const auto& word : job.typed) {
    if (word != "--fresh" && word != "fresh=true" && word != "--fresh=true") {
      words.push_back(quoted(word));
    }
  }
  return fmt::format("{}", fmt::join(words, " "));
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

launch::RankEnvironment foreign_rank(const launch::LaunchPlan& plan) {
  const auto& foreign = *plan.foreign;
  return {.rank = foreign.rank,
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
          .gpu = foreign.gpu,
          .continues = foreign.attempt != "0"};
}

// Another launcher's rank: this process becomes skein-worker.
[[noreturn]] void become_rank(const RankJob& job, const launch::LaunchPlan& plan) {
  const auto configuration = launch::share_bytes(config::encode(job.resolved));
  ::fcntl(configuration.descriptor(), F_SETFD, 0);  // survives the exec below
  const launch::Inherited inherited{.configuration = configuration.descriptor()};
  for (const auto& [name, value] : launch::to_environment(foreign_rank(plan), inherited)) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  ::setenv("OMP_NUM_THREADS", plan.omp_num_threads.c_str(), /*overwrite=*/1);
  for (const auto& [name, value] : launch::kMathVariables) ::setenv(name, value, /*overwrite=*/0);
  // c10d's store would print a stack for each lost connection.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  exec_worker(job.command, job.arguments);
}

int start_hosts(const RankJob& job, const launch::LaunchPlan& plan,
                const launch::Environment& environment) {
  launch::RemoteStartOptions options{.arguments = {job.command}};
  options.arguments.insert(options.arguments.end(), job.arguments.begin(), job.arguments.end());
  for (const auto& [name, value] : launch::forwarded(environment)) options.variables[name] = value;
  return launch::start_remote(plan, options);
}

// About what a launcher holds open for each of its ranks and for all that join it, and a rank for
// each of the others; told before it is missing, where nobody could say how many would do.
void warn_of_few_files(const launch::LaunchPlan& plan) {
  rlimit limit{};
  const auto needed =
      rlim_t{64} + 8 * static_cast<rlim_t>(plan.local_ranks) + 2 * static_cast<rlim_t>(plan.size());
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  log_warning("launch: the limit on open files is {}, and {} ranks need about {}: ulimit -n {}",
              limit.rlim_cur, plan.size(), needed, needed);
}

// A node that comes back to a run finds its checkpoints: whether the run was to begin without them
// is asked on node 0, and of the ranks, who know whether they continue it.
config::Resolved as_seen_by(int node, config::Resolved resolved) {
  auto& wish = resolved.config.checkpoint.resume_from_checkpoint;
  if (node != 0 && wish == "false") wish = "auto";
  return resolved;
}

std::string prepare_node(const RankJob& job, const DetectedRun& run) {
  const int size = run.launch.size();
  const auto resolved = as_seen_by(run.launch.node_rank, job.resolved);
  if (job.check) job.check(resolved, size, run.place());
  if (job.check_space) job.check_space(resolved, run.machine());
  return job.prepare ? job.prepare(resolved, size) : "";
}

// What cannot be read is told by the check, once the nodes have met.
void settle(RankJob& job, const DetectedRun& run) try {
  if (!job.settle) return;
  for (const auto& reason : job.settle(job.resolved, run.machine())) log_info("{}", reason);
} catch (const UserError&) {
} catch (const IoError&) {
}

std::optional<launch::LaunchOptions::Ladder> make_ladder(const plan::Ladder& ladder) {
  if (!ladder.is_open()) return std::nullopt;
  auto recorded = ladder.recorded();
  if (!recorded.empty()) {
    log_info(
        "{}, since an earlier start ran out of memory; give distributed_strategy and "
        "per_device_train_batch_size to try more again",
        recorded);
  }
  return launch::LaunchOptions::Ladder{
      .given_up = std::move(recorded),
      .lower = [ladder](const std::string& given_up) { return ladder.lower(given_up); },
      .configure =
          [ladder](const std::string& given_up) {
            return config::encode(ladder.without(given_up));
          }};
}

int start_ranks(const RankJob& job, const DetectedRun& run, const config::Resolved& asked) {
  auto plan = run.launch;
  const auto& resolved = job.resolved;
  const auto& checkpoint = resolved.config.checkpoint;
  const bool one_cpu_machine = plan.nodes == 1 && plan.device == config::Device::kCpu;
  const std::chrono::seconds join_timeout(resolved.config.parallel.join_timeout);
  launch::LaunchOptions options{.join_timeout = join_timeout,
                                .limits = limits_of(resolved, one_cpu_machine),
                                .output = config::output_folder(checkpoint),
                                .command = continuing_command(job),
                                .rank_configuration = config::encode(resolved),
                                .prepare = [&] { return prepare_node(job, run); },
                                .configuration_text = config::to_yaml(resolved),
                                .needs_shared_output = !checkpoint.save_on_each_node};
  const auto any = [](const std::vector<int>& bits) {
    return std::any_of(bits.begin(), bits.end(), [](int bit) { return bit != 0; });
  };
  if (!plan.output.log_dir && (any(plan.output.redirects) || any(plan.output.tees))) {
    plan.output.log_dir = options.output / "logs";
  }
  if (!options.output.empty()) {
    options.saved = [output = options.output] { return plan::newest_saved(output); };
  }
  if (job.gives_up) options.ladder = make_ladder({asked, resolved, run.machine()});
  options.stop_grace = std::chrono::seconds(resolved.config.parallel.stop_grace);
  return launch::launch(plan, worker_command(job), options);
}

}  // namespace

RankCommand begin_rank_command(std::span<const std::string> arguments) {
  // Whoever reads our output may go away (`| head`, a closed terminal): the run goes on. Ranks
  // inherit it.
  std::signal(SIGPIPE, SIG_IGN);
  raise_file_limit();  // every rank has connections to every other
  if (const auto level = launch::asked_log_level(launch::read_environment())) set_log_level(*level);
  auto words = launch::split_launch_flags(arguments);
  return {std::move(words), std::make_unique<launch::EarlyStop>([] {})};
}

int launch_ranks(const RankJob& given, std::unique_ptr<launch::EarlyStop> early_stop) {
  auto job = given;
  // torchrun's word for the same key.
  if (const auto seconds = job.flags.join_timeout) {
    job.resolved.config.parallel.join_timeout = seconds->count();
  }
  const auto environment = launch::read_environment();
  const auto run = detect_run(job.flags, environment, job.resolved.config.parallel);
  const auto& plan = run.launch;
  if (plan.foreign) set_log_rank(plan.foreign->rank);
  for (const auto& note : job.resolved.notes) log_info("note: {}", note);
  for (const auto& warning : plan.warnings) log_warning("{}", warning);
  if (job.check_size) job.check_size(plan.size());
  // The machines of a hostfile check for themselves: this one need not have their files.
  if (!plan.hosts.empty()) {
    early_stop.reset();
    return start_hosts(job, plan, environment);
  }
  // Alone, nobody is kept waiting by a refusal. Nodes check once they have met, before their ranks
  // start, and another launcher's ranks when they have (train/session.cpp).
  const bool alone = plan.nodes == 1 && !plan.foreign;
  if (alone && job.check) job.check(job.resolved, plan.size(), run.place());
  const auto asked = job.resolved;
  settle(job, run);
  log_info("launch: {}, OMP_NUM_THREADS={}", plan.summary, plan.omp_num_threads);
  if (const auto variables = launch::describe(environment); !variables.empty()) {
    log_info("variables: {}", variables);
  }
  config::check_subfolders(config::output_folder(job.resolved.config.checkpoint), ::geteuid());
  if (plan.foreign) {
    if (plan.foreign->rank == 0 && job.check_space) job.check_space(job.resolved, run.machine());
    become_rank(job, plan);
  }
  warn_of_few_files(plan);
  early_stop.reset();  // the launcher has its own
  return start_ranks(job, run, asked);
}

}  // namespace skein::cli
