// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/detect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "skein/core/error.h"
#include "skein/launch/placement/foreign_rank.h"
#include "skein/launch/placement/hostfile.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/placement/node_place.h"
#include "skein/launch/placement/numa.h"
#include "skein/launch/placement/number.h"
#include "skein/launch/placement/rank_request.h"

namespace skein::launch {
namespace {

using config::Device;

constexpr int kUsualPort = 29500;

// What a rank of ours has in its environment says nothing about a start inside it.
Environment without_own(Environment environment) {
  if (!environment.contains("SKEIN_STORE_PORT")) return environment;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "SKEIN_STORE_PORT"}) {
    environment.erase(name);
  }
  return environment;
}

void fill_common(LaunchPlan& plan, const LaunchFlags& flags) {
  plan.secret_file = flags.secret_file;
  plan.max_restarts = flags.max_restarts.value_or(0);
  plan.ssh_port = flags.ssh_port.value_or(0);
  plan.numa = flags.numa.value_or(NumaBinding::kNone);
  plan.local_addr = flags.local_addr;
  plan.join_timeout = flags.join_timeout;
  auto& output = plan.output;
  output.log_dir = flags.log_dir;
  output.redirects = read_streams(flags.redirects.value_or("0"), plan.local_ranks, "--redirects");
  output.tees = read_streams(flags.tee.value_or("0"), plan.local_ranks, "--tee");
  if (!flags.local_ranks_filter) return;
  for (const auto word : split(*flags.local_ranks_filter, ',')) {
    output.shown.push_back(need_number(word, "--local-ranks-filter", 0, plan.local_ranks - 1));
  }
}

// The flags that would start ranks cannot say anything else than the launcher has done.
void check_flags_of_foreign(const LaunchFlags& flags, const FoundRank& found) {
  const auto& rank = found.rank;
  const auto refuse = [&](const std::string& what, const std::string& other) {
    throw UserError(
        fmt::format("{} and {} contradict each other: {} has started this process as rank {} of {}",
                    what, other, rank.launcher, rank.rank, rank.size));
  };
  const int nodes = rank.size / rank.local_size;
  const auto asked = flags.nproc_per_node ? flags.nproc_per_node : flags.num_gpus;
  const auto number = asked ? read_number(*asked, 1, kMostLocalRanks) : std::nullopt;
  if (number && *number != rank.local_size) {
    refuse(fmt::format("{} {}", flags.nproc_per_node ? "--nproc-per-node" : "--num-gpus", *asked),
           fmt::format("{} ranks on this machine ({})", rank.local_size, found.variables));
  }
  for (const auto& [name, value] :
       {std::pair("--nnodes", flags.nnodes), std::pair("--num-nodes", flags.num_nodes)}) {
    if (!value || *value == nodes) continue;
    refuse(fmt::format("{} {}", name, *value),
           fmt::format("{} node(s) ({})", nodes, found.variables));
  }
  if (flags.hostfile) refuse("--hostfile", found.variables);
  if (flags.include || flags.exclude) {
    refuse(flags.include ? "--include" : "--exclude", found.variables);
  }
  if (flags.max_restarts.value_or(0) > 0) {
    throw UserError(fmt::format("--max-restarts {}: restarts belong to {}: give it --max-restarts",
                                *flags.max_restarts, rank.launcher));
  }
}

LaunchPlan plan_foreign(const Situation& situation, const LaunchFlags& flags, FoundRank found) {
  check_flags_of_foreign(flags, found);
  fill_address(found, flags, situation.environment, situation.parent);
  auto& rank = found.rank;
  const bool own_gpu = found.own_gpu && situation.hardware.gpus == 1;
  const RankRequest request{std::to_string(own_gpu ? 1 : rank.local_size),
                            fmt::format("{} ({})", rank.launcher, found.variables), false};
  auto plan = plan_ranks(situation, request);
  rank.gpu = own_gpu ? 0 : rank.local_rank;
  plan.local_ranks = rank.local_size;
  plan.nodes = rank.size / rank.local_size;
  plan.node_rank = rank.rank / rank.local_size;
  plan.master_addr = rank.master_addr;
  plan.master_port = rank.master_port;
  fill_common(plan, flags);
  const char* kind = plan.device == Device::kCuda ? "GPU" : "CPU";
  plan.summary = fmt::format("{} rank {} of {}, started by {} ({}), store at {}:{}{}", kind,
                             rank.rank, rank.size, rank.launcher, found.variables, rank.master_addr,
                             rank.master_port, rank.store_is_served ? " (its agent's)" : "");
  plan.foreign = rank;
  return plan;
}

// `--include localhost:1,3` without a hostfile: which GPUs of this machine.
std::vector<int> choose_slots(const Situation& situation, const LaunchFlags& flags) {
  const bool gpus = situation.device != Device::kCpu && why_no_gpu(situation).empty();
  Host host{.name = "localhost", .slots = {}};
  host.slots.resize(static_cast<size_t>(gpus ? situation.hardware.gpus : situation.hardware.cores));
  std::iota(host.slots.begin(), host.slots.end(), 0);
  const auto chosen = choose_hosts(
      {host},
      {.include = flags.include.value_or(""), .exclude = flags.exclude.value_or(""), .most = 0});
  return chosen.at(0).slots;
}

// Numbers among the visible GPUs, in the user's own names for them.
std::string name_devices(const std::vector<int>& slots, const Environment& environment) {
  const auto variable = find_variable(environment, "CUDA_VISIBLE_DEVICES").value_or("");
  const auto names = split(variable, ',');
  std::vector<std::string> chosen;
  for (const int slot : slots) {
    const auto index = static_cast<size_t>(slot);
    const bool named = !variable.empty() && index < names.size();
    chosen.push_back(named ? std::string(names[index]) : std::to_string(slot));
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

LaunchPlan plan_here(const Situation& situation, const LaunchFlags& flags, RankRequest request) {
  if (!flags.include && !flags.exclude) return plan_ranks(situation, request);
  const auto slots = choose_slots(situation, flags);
  const auto count = std::to_string(slots.size());
  const char* origin = flags.include ? "--include" : "--exclude";
  if (request.number() && *request.text != count) {
    throw UserError(fmt::format("{} {} and {} {} contradict each other", request.origin,
                                *request.text, origin,
                                flags.include ? *flags.include : *flags.exclude));
  }
  auto plan = plan_ranks(situation, {count, origin, request.gpus_only});
  if (plan.device == Device::kCuda) {
    plan.visible_devices = name_devices(slots, situation.environment);
  }
  return plan;
}

void place(LaunchPlan& plan, const NodePlace& node) {
  plan.nodes = node.count;
  plan.node_rank = node.rank;
  if (node.count == 1) return;
  plan.master_addr = node.address;
  plan.master_port = node.port;
  plan.summary = fmt::format("{}, node {} of {} ({}; {}), node 0 is {}:{}", plan.summary, node.rank,
                             node.count, node.origin, node.rank_origin, node.address, node.port);
  const bool loopback = node.address == "localhost" || node.address.starts_with("127.");
  if (loopback && node.rank > 0) {
    plan.warnings.push_back(
        fmt::format("node 0 is {}, which is this machine itself: right only if all {} run here",
                    node.address, node.count));
  }
}

void note_numa(LaunchPlan& plan, const Hardware& hardware) {
  const bool whole_nodes = plan.numa == NumaBinding::kNode || plan.numa == NumaBinding::kSocket;
  if (!whole_nodes || hardware.count_numa_nodes() > 1) return;
  plan.warnings.push_back(fmt::format(
      "--numa-binding {}: no effect, this machine has one NUMA node", to_text(plan.numa)));
}

LaunchPlan plan_by_hand(const Situation& situation, const LaunchFlags& flags,
                        const RankRequest& request, const NodePlace& node) {
  auto plan = plan_here(situation, flags, request);
  place(plan, node);
  fill_common(plan, flags);
  note_numa(plan, situation.hardware);
  return plan;
}

std::vector<Host> find_hosts(const LaunchFlags& flags, const RankRequest& request) {
  const int most = flags.nnodes ? *flags.nnodes : flags.num_nodes.value_or(0);
  auto hosts = choose_hosts(
      read_hostfile(*flags.hostfile),
      {.include = flags.include.value_or(""), .exclude = flags.exclude.value_or(""), .most = most});
  const auto ranks = request.number();
  for (auto& host : hosts) {
    if (ranks && static_cast<size_t>(*ranks) > host.slots.size()) {
      throw UserError(fmt::format("{} {}, but host '{}' has {} slot(s) in {}", request.origin,
                                  *ranks, host.name, host.slots.size(), flags.hostfile->string()));
    }
    if (ranks) host.slots.resize(static_cast<size_t>(*ranks));
  }
  for (const auto& host : hosts) {
    if (host.slots.size() == hosts[0].slots.size()) continue;
    throw UserError(fmt::format(
        "host '{}' has {} slot(s) and host '{}' has {}: every node runs the same number of "
        "ranks; type --num-gpus N, or --include",
        hosts[0].name, hosts[0].slots.size(), host.name, host.slots.size()));
  }
  return hosts;
}

// `user@host` is for ssh alone.
std::string address_of(const Host& host) {
  const auto at = host.name.find('@');
  return at == std::string::npos ? host.name : host.name.substr(at + 1);
}

void check_count(const Environment& environment, const std::vector<Host>& hosts,
                 const LaunchFlags& flags) {
  for (const char* name : {"NNODES", "WORLD_SIZE"}) {
    const auto text = find_variable(environment, name);
    if (!text || *text == "1" || *text == std::to_string(hosts.size())) continue;
    throw UserError(fmt::format("{}={} and {} ({} host(s)) contradict each other: unset {}", name,
                                *text, flags.hostfile->string(), hosts.size(), name));
  }
}

// --no-ssh: the hostfile only says which nodes there are.
LaunchPlan plan_without_ssh(const Situation& situation, LaunchFlags flags,
                            const RankRequest& request, const std::vector<Host>& hosts) {
  flags.nnodes = static_cast<int>(hosts.size());
  flags.num_nodes.reset();
  flags.include.reset();
  flags.exclude.reset();
  if (!flags.master_addr && !flags.rdzv_endpoint) flags.master_addr = address_of(hosts[0]);
  const auto ranks = std::to_string(hosts[0].slots.size());
  const auto node = find_node_place(flags, situation.environment, request.number());
  return plan_by_hand(situation, flags, {ranks, "--hostfile", false}, node);
}

// A hostfile that leaves this machine alone needs no ssh.
LaunchPlan plan_lone_host(const Situation& situation, LaunchFlags flags, const Host& host) {
  flags.include = fmt::format("localhost:{}", fmt::join(host.slots, ","));
  flags.exclude.reset();
  return plan_by_hand(situation, flags, {}, {});
}

LaunchPlan plan_hosts(const Situation& situation, const LaunchFlags& flags,
                      const RankRequest& request) {
  const auto hosts = find_hosts(flags, request);
  check_count(situation.environment, hosts, flags);
  if (flags.no_ssh.value_or(false)) return plan_without_ssh(situation, flags, request, hosts);
  if (hosts.size() == 1 && is_local(hosts[0].name))
    return plan_lone_host(situation, flags, hosts[0]);
  if (flags.node_rank) {
    throw UserError(fmt::format(
        "--hostfile {} starts all nodes over ssh from one of them, --node-rank {} starts one by "
        "hand: drop one, or add --no-ssh",
        flags.hostfile->string(), *flags.node_rank));
  }
  LaunchPlan plan;
  plan.local_ranks = static_cast<int>(hosts[0].slots.size());
  const bool gpus = situation.device != Device::kCpu && why_no_gpu(situation).empty();
  plan.device = gpus || situation.device == Device::kCuda ? Device::kCuda : Device::kCpu;
  plan.hosts = hosts;
  plan.nodes = static_cast<int>(hosts.size());
  plan.master_addr = flags.rdzv_endpoint ? flags.rdzv_endpoint->host
                                         : flags.master_addr.value_or(address_of(hosts[0]));
  const auto endpoint_port = flags.rdzv_endpoint ? flags.rdzv_endpoint->port : std::nullopt;
  plan.master_port = endpoint_port.value_or(flags.master_port.value_or(0));
  if (plan.master_port == 0) plan.master_port = kUsualPort;
  fill_common(plan, flags);
  plan.summary = fmt::format("{} rank{} on each of {} node{} ({}), over ssh, node 0 is {}:{}",
                             plan.local_ranks, plan.local_ranks == 1 ? "" : "s", plan.nodes,
                             plan.nodes == 1 ? "" : "s", flags.hostfile->string(), plan.master_addr,
                             plan.master_port);
  return plan;
}

// Whether a task of srun or mpirun shall start ranks of its own, being alone on its node.
bool starts_own_ranks(const FoundRank& task, const RankRequest& request) {
  return task.rank.local_size == 1 && request.text && *request.text != "1";
}

}  // namespace

LaunchPlan detect(const Situation& given) {
  auto situation = given;
  situation.environment = without_own(std::move(situation.environment));
  const auto& environment = situation.environment;
  // torchrun's PET_ variables are for torchrun, where it is the launcher.
  if (const auto worker = find_worker(environment)) {
    return plan_foreign(situation, given.flags, *worker);
  }
  const auto flags = with_variables(given.flags, environment);
  const auto request = find_request(flags, environment);
  const bool by_hand = flags.node_rank.has_value() || flags.hostfile.has_value();
  auto task = by_hand ? std::nullopt : find_task(environment);
  if (task && starts_own_ranks(*task, request)) {
    fill_address(*task, flags, environment, situation.parent);
    return plan_by_hand(situation, flags, request, node_place_of_task(*task));
  }
  if (task) return plan_foreign(situation, flags, *task);
  if (flags.hostfile) return plan_hosts(situation, flags, request);
  const auto node = find_node_place(flags, environment, request.number());
  return plan_by_hand(situation, flags, request, node);
}

}  // namespace skein::launch
