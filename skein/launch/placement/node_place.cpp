// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/node_place.h"

#include <fmt/format.h>

#include <vector>

#include "skein/core/error.h"
#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

constexpr int kMostNodes = 4096;
constexpr int kMostRanks = 1'000'000;
constexpr int kMostPort = 65535;
constexpr int kUsualPort = 29500;

// A number and who said it.
struct Said {
  int value = 0;
  std::string origin;  // as typed: "--nnodes 2", "NNODES=2"
};

std::optional<Said> said_by_flag(const char* name, std::optional<int> value) {
  if (!value) return std::nullopt;
  return Said{*value, fmt::format("{} {}", name, *value)};
}

std::optional<Said> said_by_variable(const Environment& environment, const char* name, int low,
                                     int high) {
  const auto text = find_variable(environment, name);
  if (!text) return std::nullopt;
  return Said{need_number(*text, name, low, high), fmt::format("{}={}", name, *text)};
}

[[noreturn]] void refuse_pair(const Said& one, const Said& other) {
  throw UserError(
      fmt::format("{} and {} contradict each other: drop one", one.origin, other.origin));
}

// The first that was said; all that were must agree.
std::optional<Said> agreed(const std::vector<std::optional<Said>>& candidates) {
  std::optional<Said> first;
  for (const auto& candidate : candidates) {
    if (!candidate) continue;
    if (!first) first = candidate;
    if (candidate->value != first->value) refuse_pair(*first, *candidate);
  }
  return first;
}

// How many nodes, and whether RANK and WORLD_SIZE speak of nodes.
struct Count {
  std::optional<Said> said;
  bool rank_is_node = false;
};

Count count_nodes(const LaunchFlags& flags, const Environment& environment,
                  std::optional<int> nproc) {
  Count count;
  count.said =
      agreed({said_by_flag("--nnodes", flags.nnodes), said_by_flag("--num-nodes", flags.num_nodes),
              said_by_variable(environment, "NNODES", 1, kMostNodes)});
  const auto world = said_by_variable(environment, "WORLD_SIZE", 1, kMostRanks);
  if (!world) {
    count.rank_is_node = count.said.has_value();
    return count;
  }
  if (!count.said) {
    need_number(std::to_string(world->value), "WORLD_SIZE (nodes)", 1, kMostNodes);
    return {world, true};
  }
  count.rank_is_node = world->value == count.said->value;
  const bool counts_ranks = nproc && world->value == count.said->value * *nproc;
  if (!count.rank_is_node && !counts_ranks) {
    throw UserError(fmt::format(
        "{} and {} contradict each other: without LOCAL_RANK, WORLD_SIZE counts nodes; drop one",
        count.said->origin, world->origin));
  }
  return count;
}

std::optional<Said> find_rank(const LaunchFlags& flags, const Environment& environment,
                              const Count& count) {
  const auto rank = said_by_variable(environment, "RANK", 0, kMostRanks);
  if (rank && !count.said && !flags.node_rank && !find_variable(environment, "NODE_RANK")) {
    throw UserError(fmt::format(
        "{} is set, but WORLD_SIZE is not: set both (they number nodes when LOCAL_RANK is not "
        "set), or unset RANK to run on this machine alone",
        rank->origin));
  }
  return agreed({said_by_flag("--node-rank", flags.node_rank),
                 said_by_variable(environment, "NODE_RANK", 0, kMostNodes),
                 count.rank_is_node ? rank : std::nullopt});
}

std::optional<std::string> find_address(const LaunchFlags& flags, const Environment& environment) {
  if (flags.rdzv_endpoint) {
    const auto& host = flags.rdzv_endpoint->host;
    if (flags.master_addr && *flags.master_addr != host) {
      throw UserError(fmt::format("--master-addr {} and --rdzv-endpoint {} contradict each other",
                                  *flags.master_addr, host));
    }
    return host;
  }
  if (flags.master_addr) return flags.master_addr;
  return find_variable(environment, "MASTER_ADDR");
}

int find_port(const LaunchFlags& flags, const Environment& environment) {
  const auto& endpoint = flags.rdzv_endpoint;
  const auto port = agreed(
      {said_by_flag("--rdzv-endpoint port", endpoint ? endpoint->port : std::nullopt),
       said_by_flag("--master-port", flags.master_port == 0 ? std::nullopt : flags.master_port)});
  if (port) return port->value;
  if (const auto variable = said_by_variable(environment, "MASTER_PORT", 1, kMostPort)) {
    return variable->value;
  }
  return kUsualPort;
}

// The line to type on each machine.
[[noreturn]] void refuse_unmet(const Said& count, const std::string& missing) {
  throw UserError(
      fmt::format("{}: {}. On each machine type: skein train ... --nnodes {} --node-rank <0 to {}> "
                  "--master-addr <address of node 0> [--master-port {}]",
                  count.origin, missing, count.value, count.value - 1, kUsualPort));
}

}  // namespace

NodePlace find_node_place(const LaunchFlags& flags, const Environment& environment,
                          std::optional<int> nproc) {
  const auto counted = count_nodes(flags, environment, nproc);
  const auto rank = find_rank(flags, environment, counted);
  const auto count = counted.said.value_or(Said{1, "one machine"});
  if (rank && rank->value >= count.value) {
    throw UserError(
        counted.said
            ? fmt::format("{} and {} contradict each other: nodes are numbered from 0 to {}",
                          rank->origin, count.origin, count.value - 1)
            : fmt::format("{}, but nothing says how many nodes there are: add --nnodes (or "
                          "NNODES, or WORLD_SIZE)",
                          rank->origin));
  }
  NodePlace node;
  node.count = count.value;
  node.origin = count.origin;
  if (count.value == 1) return node;
  if (flags.standalone.value_or(false)) {
    throw UserError(fmt::format("--standalone means one machine, but {}: drop one", count.origin));
  }
  const auto address = find_address(flags, environment);
  if (!address) refuse_unmet(count, "where is node 0? MASTER_ADDR is not set");
  if (!rank) refuse_unmet(count, "which of the nodes is this? NODE_RANK is not set");
  node.rank = rank->value;
  node.rank_origin = rank->origin;
  node.address = *address;
  node.port = find_port(flags, environment);
  return node;
}

NodePlace node_place_of_task(const FoundRank& found) {
  const auto& rank = found.rank;
  return {.count = rank.size,
          .rank = rank.rank,
          .address = rank.master_addr,
          .port = rank.master_port,
          .origin = fmt::format("one task of {} on each", rank.launcher),
          .rank_origin = found.variables};
}

}  // namespace skein::launch
