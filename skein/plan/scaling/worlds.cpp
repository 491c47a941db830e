// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/worlds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::plan {
namespace {

[[noreturn]] void refuse(const WorldShape& launch, int64_t asked) {
  std::vector<int64_t> possible;
  for (const auto& world : worlds_within(launch)) possible.push_back(world.size());
  const auto what = launch.nodes == 1
                        ? fmt::format("{} ranks", launch.size())
                        : fmt::format("{} x {} ranks", launch.nodes, launch.ranks_per_node);
  throw UserError(
      fmt::format("--ranks: the {} of this launch cannot be divided into worlds of {} (but of {}); "
                  "--nproc-per-node N starts N ranks on each machine",
                  what, asked, fmt::join(possible, ", ")));
}

}  // namespace

std::vector<WorldShape> worlds_within(const WorldShape& launch) {
  std::vector<WorldShape> worlds;
  for (int64_t ranks = 1; ranks <= launch.ranks_per_node; ++ranks) {
    if (launch.ranks_per_node % ranks == 0) worlds.push_back({1, ranks});
  }
  for (int64_t nodes = 2; nodes <= launch.nodes; ++nodes) {
    if (launch.nodes % nodes == 0) worlds.push_back({nodes, launch.ranks_per_node});
  }
  return worlds;
}

std::vector<WorldShape> worlds_within(const WorldShape& launch, std::span<const int64_t> asked) {
  auto worlds = worlds_within(launch);
  if (asked.empty()) return worlds;
  for (const auto size : asked) {
    if (std::ranges::count(worlds, size, &WorldShape::size) == 0) refuse(launch, size);
  }
  std::erase_if(worlds, [&](const WorldShape& world) {
    return std::ranges::count(asked, world.size()) == 0;
  });
  return worlds;
}

}  // namespace skein::plan
