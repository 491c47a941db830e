// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/rank_run.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>

#include "skein/board/board.h"
#include "skein/cli/guard.h"
#include "skein/config/handover.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/placement/variables.h"
#include "skein/launch/process/stop_request.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_data.h"

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

// A step's tensors come back in the next one. malloc would hand the top of its heap to the kernel
// in between and fault thousands of pages in again. (On GPUs LibTorch keeps memory itself.)
void keep_freed_memory() {
  constexpr int kLargestOnTheHeap = 32 << 20;  // the most that malloc allows
  ::mallopt(M_MMAP_THRESHOLD, kLargestOnTheHeap);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// Deadlines are the watchers' business, who know all ranks (launch/watch/diagnosis.h), and whose
// clock stands still while a run is paused; the group's own is for the case that nobody watches.
std::chrono::seconds group_timeout(const launch::RankEnvironment& environment, int64_t given) {
  if (environment.foreign.name.empty()) return std::chrono::hours(24 * 30);
  return std::max<std::chrono::seconds>(2 * std::chrono::seconds(given), std::chrono::hours(1));
}

comm::GroupOptions group_options(const launch::RankEnvironment& environment,
                                 const config::ParallelConfig& parallel, bool cuda) {
  return {.rank = environment.rank,
          .size = environment.size,
          .backend = plan::backend(parallel, environment.device),
          .address = environment.interface,
          .device_index = cuda ? environment.gpu : -1,
          .local_rank = environment.local_rank,
          .local_size = environment.local_size,
          .shared_memory = environment.shared_memory,
          .timeout = group_timeout(environment, parallel.ddp_timeout)};
}

// Of a start that continues this very run: its own checkpoints are no other run's, whatever it was
// to begin with.
config::Resolved going_on(config::Resolved resolved) {
  auto& checkpoint = resolved.config.checkpoint;
  checkpoint.fresh = false;
  if (checkpoint.resume_from_checkpoint == "false") checkpoint.resume_from_checkpoint = "auto";
  return resolved;
}

int run_body(const RankCommand& command, const config::Resolved& typed, RankSession& session) {
  const auto& environment = session.environment();
  const auto resolved = environment.continues ? going_on(typed) : typed;
  const auto& config = resolved.config;
  const bool cuda = environment.device == config::Device::kCuda;
  const at::Device device =
      cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(environment.gpu)) : at::kCPU;
  if (config.full_determinism) make_deterministic();
  if (!cuda) keep_freed_memory();
  session.begin(resolved, command.prepare);
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
      .own_output = config.checkpoint.save_on_each_node,
      .starts_over = typed.config.checkpoint.fresh,
      .given_up = environment.given_up,
      .may_give_up = environment.may_give_up,
      .fence = session.fence(config::output_folder(config.checkpoint))};
  // Not earlier: until now there is nothing to finish or save.
  if (command.ends_by_itself) {
    session.take_stops();
    launch::install_stop_handlers();
  }
  // Guarded here too, while the group still stands: once it falls, the peers fail as well and could
  // be heard instead of the cause.
  const int code = run_guarded(
      [&] {
        const int ended = command.body(resolved, world);
        world.group.shutdown();
        return ended;
      },
      session.hooks());
  // After a failure the group's destructor could wait for a lost peer for ever.
  const bool ended_well =
      code == static_cast<int>(ExitCode::kDone) || code == static_cast<int>(ExitCode::kStopped);
  if (!ended_well) end_at_once(code);
  session.leave();
  return code;
}

}  // namespace

std::string prepare_training_data(config::RunConfig config, bool may_overwrite) {
  const board::HostWork work("preparing data");
  config.data.overwrite_cache = config.data.overwrite_cache && may_overwrite;
  return plan::prepare_data(config);
}

int run_rank(const RankCommand& command) {
  const auto environment = launch::from_environment();
  set_log_rank(environment.rank);
  if (const auto level = launch::asked_log_level(launch::read_environment())) set_log_level(*level);
  const auto resolved = config::decode_resolved(environment.configuration);
  RankSession session(environment, std::chrono::seconds(resolved.config.parallel.join_timeout));
  return run_guarded([&] { return run_body(command, resolved, session); }, session.hooks());
}

}  // namespace skein::cli
