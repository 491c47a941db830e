// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// skein-worker: the program behind `skein` that links LibTorch. One process per rank.

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "skein/cli/commands.h"
#include "skein/cli/guard.h"
#include "skein/cli/rank_session.h"
#include "skein/cli/worker_program.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/plan/variables.h"
#include "skein/launch/process/stop_request.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/plan/rules.h"
#include "skein/train/offline.h"

namespace skein::cli {
namespace {

// Alike on all ranks and new at every start: names the temporary folders of its saves.
std::string share_token(const launch::RankEnvironment& environment, Store& store) {
  const auto key = fmt::format("run/{}/token", environment.generation);
  if (environment.rank == 0) store.set(key, fmt::format("{:08x}", std::random_device{}()));
  return store.get(key, std::chrono::seconds(60));
}

void make_deterministic() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// Deadlines are the watchers' business, who know all ranks (launch/watch/diagnosis.h); the group's
// own is for the case that nobody watches.
comm::GroupOptions group_options(const launch::RankEnvironment& environment,
                                 const config::ParallelConfig& parallel, bool cuda) {
  return {.rank = environment.rank,
          .size = environment.size,
          .backend = plan::backend(parallel, environment.device),
          .address = environment.interface,
          .device_index = cuda ? environment.gpu : -1,
          .local_rank = environment.local_rank,
          .local_size = environment.local_size,
          .timeout = std::max<std::chrono::seconds>(2 * std::chrono::seconds(parallel.ddp_timeout),
                                                    std::chrono::hours(1))};
}

[[noreturn]] void end_at_once(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

config::Resolved load_run(std::span<const std::string> arguments) {
  const bool continues = !arguments.empty() && arguments.back() == kContinueWord;
  if (continues) arguments = arguments.first(arguments.size() - 1);
  auto resolved = config::load(arguments);
  if (continues) resolved.config.checkpoint.fresh = false;
  return resolved;
}

// Runs `body`; a GPU that is too small is told as what it is, with what to do.
train::Outcome with_memory_advice(const std::function<train::Outcome()>& body) try {
  return body();
} catch (const c10::OutOfMemoryError& error) {
  const std::string reason = error.what_without_backtrace();
  throw UserError(fmt::format(
      "the GPU's memory is full: {}\nTake less at a time: a smaller per_device_train_batch_size "
      "with more gradient_accumulation_steps (the global batch stays), a smaller block_size, "
      "gradient_checkpointing=true, or distributed_strategy=zero2 or zero3 on several GPUs. `skein "
      "plan` estimates what is needed.",
      reason.substr(0, reason.find('\n'))));
}

// Another launcher's ranks need the configuration to join; its mistakes were told before.
std::chrono::seconds join_timeout(const launch::RankEnvironment& environment,
                                  std::span<const std::string> arguments) {
  if (environment.foreign.name.empty()) return {};
  return std::chrono::seconds(load_run(arguments).config.parallel.join_timeout);
}

int run_train(std::span<const std::string> arguments, RankSession& session) {
  const auto& environment = session.environment();
  const auto resolved = load_run(arguments);
  const auto batches = config::plan_batches(resolved, environment.size);
  const auto& config = resolved.config;
  const bool cuda = environment.device == config::Device::kCuda;
  const at::Device device =
      cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(environment.gpu)) : at::kCPU;
  if (config.full_determinism) make_deterministic();
  session.begin(resolved);
  const c10::DeviceGuard guard(device);
  auto& store = session.store();
  train::World world{
      .group = comm::connect(group_options(environment, config.parallel, cuda), store),
      .store = store,
      .device = device,
      .local_rank = environment.local_rank,
      .token = share_token(environment, store),
      .stop_requested = launch::stop_requested,
      .local_size = environment.local_size,
      .own_output = config.checkpoint.save_on_each_node};
  launch::install_stop_handlers();  // not earlier: until now there is nothing to finish or save
  // Guarded here too, while the group still stands: once it falls, the peers fail as well and could
  // be heard instead of the cause.
  const int code = run_guarded(
      [&] {
        const auto outcome =
            with_memory_advice([&] { return train::run_offline(resolved, batches, world); });
        world.group.shutdown();
        return static_cast<int>(outcome == train::Outcome::kStopped ? ExitCode::kStopped
                                                                    : ExitCode::kDone);
      },
      session.hooks());
  // After a failure the group's destructor could wait for a lost peer for ever.
  const bool ended_well =
      code == static_cast<int>(ExitCode::kDone) || code == static_cast<int>(ExitCode::kStopped);
  if (!ended_well) end_at_once(code);
  session.leave();
  return code;
}

int run_rank(std::span<const std::string> arguments) {
  const auto environment = launch::from_environment();
  set_log_rank(environment.rank);
  if (const auto level = launch::asked_log_level(launch::read_environment())) set_log_level(*level);
  RankSession session(environment, join_timeout(environment, arguments));
  return run_guarded([&] { return run_train(arguments, session); }, session.hooks());
}

// LibTorch multiplies 16-bit matrices on CPUs with AMX tiles where the CPU says that it has them,
// and dies of SIGILL on some virtual machines that say so (plain PyTorch 2.11 does too). oneDNN
// reads the limit once, at its first product; what the user has set stays.
void keep_off_amx_tiles() { ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0); }

struct Command {
  const char* name;
  int (*run)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {{"train", run_rank},
                                 {"generate", run_generate_command},
                                 {"eval", run_eval_command},
                                 {"bench", run_bench_command},
                                 {"doctor-facts", run_doctor_facts},
                                 {"doctor-rank", run_doctor_rank},
                                 {"debug-forward", run_debug_forward}};

int run(const std::vector<std::string>& arguments) {
  for (const auto& command : kCommands) {
    if (!arguments.empty() && arguments[0] == command.name) {
      return command.run(std::span(arguments).subspan(1));
    }
  }
  throw UserError("skein-worker is started by skein: type `skein train CONFIG.yaml`");
}

}  // namespace
}  // namespace skein::cli

int main(int argc, char** argv) {
  skein::cli::open_missing_streams();
  skein::cli::keep_off_amx_tiles();
  const int code = skein::cli::run_guarded(
      [&] { return skein::cli::run(std::vector<std::string>(argv + 1, argv + argc)); });
  skein::cli::end_at_once(code);  // threads of LibTorch have nothing left to say
}
