// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <utility>

#include "skein/cli/launch_ranks.h"
#include "skein/cli/scaling/flags.h"
#include "skein/cli/worker_program.h"
#include "skein/core/error.h"
#include "skein/core/stop_signals.h"

namespace skein::cli {
namespace {

// Early, by the number alone; the ranks know their machines too (plan/scaling/worlds.h).
void check_ranks(const ScalingFlags& flags, int size) {
  for (const auto ranks : flags.ranks) {
    if (size % ranks == 0) continue;
    throw UserError(fmt::format(
        "--ranks: {} is no part of the {} of this launch; --nproc-per-node N starts N on each "
        "machine",
        ranks, size == 1 ? "1 rank" : fmt::format("{} ranks", size)));
  }
}

}  // namespace

int run_bench_launcher(std::span<const std::string> arguments) {
  if (arguments.empty() || arguments[0] != "scaling") {
    release_stop_signals();
    exec_worker("bench", arguments);
  }
  auto [split, early_stop] = begin_rank_command(arguments);
  RankJob job{.command = "bench",
              .typed = {arguments.begin(), arguments.end()},
              .arguments = split.rest,
              .flags = split.flags,
              .resolved = {}};
  const auto flags = parse_scaling_flags(std::span(split.rest).subspan(1));
  job.resolved.config.parallel.device = flags.device;
  job.check_size = [&](int size) { check_ranks(flags, size); };
  job.check = [&](const config::Resolved&, int, const plan::Place&) { check_scaling(flags); };
  return launch_ranks(job, std::move(early_stop));
}

}  // namespace skein::cli
