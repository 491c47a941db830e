// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/launch_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/launch/placement/numa.h"

namespace skein::launch {
namespace {

// torchrun's form: `0:1,1:3`, local ranks with nothing left out.
std::string to_streams(const std::vector<int>& bits) {
  std::vector<std::string> parts;
  for (size_t rank = 0; rank < bits.size(); ++rank) {
    if (bits[rank] != 0) parts.push_back(fmt::format("{}:{}", rank, bits[rank]));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

void add_output_flags(const OutputPlan& output, std::vector<std::string>& flags) {
  if (output.log_dir) flags.push_back(fmt::format("--log-dir={}", output.log_dir->string()));
  const auto redirects = to_streams(output.redirects);
  if (!redirects.empty()) flags.push_back("--redirects=" + redirects);
  const auto tees = to_streams(output.tees);
  if (!tees.empty()) flags.push_back("--tee=" + tees);
  if (!output.shown.empty()) {
    flags.push_back(fmt::format("--local-ranks-filter={}", fmt::join(output.shown, ",")));
  }
}

}  // namespace

int LaunchPlan::size() const { return foreign ? foreign->size : nodes * local_ranks; }

std::vector<std::string> node_flags(const LaunchPlan& plan, int node) {
  SKEIN_CHECK(node >= 0 && node < plan.nodes, "no such node");
  std::vector<std::string> flags = {fmt::format("--nnodes={}", plan.nodes),
                                    fmt::format("--node-rank={}", node),
                                    fmt::format("--master-addr={}", plan.master_addr),
                                    fmt::format("--master-port={}", plan.master_port),
                                    fmt::format("--nproc-per-node={}", plan.local_ranks)};
  if (plan.max_restarts > 0) flags.push_back(fmt::format("--max-restarts={}", plan.max_restarts));
  add_output_flags(plan.output, flags);
  if (plan.numa != NumaBinding::kNone) {
    flags.push_back(fmt::format("--numa-binding={}", to_text(plan.numa)));
  }
  if (plan.join_timeout) {
    flags.push_back(fmt::format("--rdzv-conf=join_timeout={}", plan.join_timeout->count()));
  }
  return flags;
}

}  // namespace skein::launch
