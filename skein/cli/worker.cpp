// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// skein-worker: the program behind `skein` that links LibTorch. One process per rank.

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "skein/cli/bench_command.h"
#include "skein/cli/debug_forward.h"
#include "skein/cli/eval_command.h"
#include "skein/cli/generate_command.h"
#include "skein/cli/guard.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/rank_environment.h"
#include "skein/launch/stop_request.h"
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

comm::GroupOptions group_options(const launch::RankEnvironment& environment,
                                 const config::ParallelConfig& parallel, bool cuda) {
  const auto backend = parallel.ddp_backend != "auto" ? parallel.ddp_backend
                       : cuda                         ? "nccl"
                                                      : "gloo";
  return {.rank = environment.rank,
          .size = environment.size,
          .backend = backend,
          .address = environment.store_host,
          .device_index = cuda ? environment.local_rank : -1,
          .timeout = std::chrono::seconds(parallel.ddp_timeout)};
}

// `may_speak` is asked while the group still stands: once it falls, the peers fail too and could
// be heard instead of the cause.
[[noreturn]] void end_at_once(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

int run_train(std::span<const std::string> arguments, const launch::RankEnvironment& environment,
              Store& store, const std::function<bool()>& may_speak) {
  const auto resolved = config::load(arguments);
  const auto batches = config::plan_batches(resolved, environment.size);
  const auto& config = resolved.config;
  const bool cuda = environment.device == config::Device::kCuda;
  const at::Device device =
      cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank))
           : at::kCPU;
  if (config.full_determinism) make_deterministic();
  const c10::DeviceGuard guard(device);
  train::World world{
      .group = comm::connect(group_options(environment, config.parallel, cuda), store),
      .store = store,
      .device = device,
      .local_rank = environment.local_rank,
      .token = share_token(environment, store),
      .stop_requested = launch::stop_requested};
  const int code = run_guarded(
      [&] {
        const auto outcome = train::run_offline(resolved, batches, world);
        world.group.shutdown();
        return static_cast<int>(outcome == train::Outcome::kStopped ? ExitCode::kStopped
                                                                    : ExitCode::kDone);
      },
      may_speak);
  // After a failure the group's destructor could wait for a lost peer for ever.
  const bool ended_well =
      code == static_cast<int>(ExitCode::kDone) || code == static_cast<int>(ExitCode::kStopped);
  if (!ended_well) end_at_once(code);
  return code;
}

int run(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "debug-forward") {
    return run_debug_forward(std::span(arguments).subspan(1));
  }
  if (!arguments.empty() && arguments[0] == "eval") {
    return run_eval_command(std::span(arguments).subspan(1));
  }
  if (!arguments.empty() && arguments[0] == "bench") {
    return run_bench_command(std::span(arguments).subspan(1));
  }
  if (!arguments.empty() && arguments[0] == "generate") {
    return run_generate_command(std::span(arguments).subspan(1));
  }
  if (arguments.empty() || arguments[0] != "train") {
    throw UserError("skein-worker is started by skein: type `skein train CONFIG.yaml`");
  }
  const auto environment = launch::from_environment();
  set_log_rank(environment.rank);
  launch::install_stop_handlers();
  const auto store = launch::connect_store(environment);
  // A mistake that all ranks make is told once, by the rank that meets it first.
  const auto is_first_to_fail = [&] { return store->add("run/failures", 1) == 1; };
  return run_guarded(
      [&] {
        return run_train(std::span(arguments).subspan(1), environment, *store, is_first_to_fail);
      },
      is_first_to_fail);
}

}  // namespace
}  // namespace skein::cli

int main(int argc, char** argv) {
  const int code = skein::cli::run_guarded(
      [&] { return skein::cli::run(std::vector<std::string>(argv + 1, argv + argc)); });
  skein::cli::end_at_once(code);  // threads of LibTorch have nothing left to say
}
