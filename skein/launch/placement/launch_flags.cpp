// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/launch_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "skein/core/error.h"
#include "skein/launch/placement/hostfile.h"
#include "skein/launch/placement/numa.h"
#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

constexpr int kMostNodes = 4096;
constexpr int kMostPort = 65535;
constexpr int kMost = 1'000'000;

// What was given: the flag as typed or its variable, and its value.
struct Given {
  std::string origin;
  std::string value;
};

using Apply = void (*)(LaunchFlags&, const Given&);

struct FlagRule {
  std::string_view name;
  bool takes_value;
  Apply apply;
};

int number(const Given& given, int low, int high) {
  return need_number(given.value, given.origin, low, high);
}

// DeepSpeed's launcher has -1 for "not given".
std::optional<int> number_or_unset(const Given& given, int low, int high) {
  if (given.value == "-1") return std::nullopt;
  return number(given, low, high);
}

bool is_on(const Given& given) {
  return given.value != "0" && given.value != "false" && given.value != "False";
}

[[noreturn]] void refuse(const Given& given, std::string_view reason) {
  throw UserError(fmt::format("{}: {}", given.origin, reason));
}

void no_effect(LaunchFlags& /*flags*/, const Given& /*given*/) {}

void set_nnodes(LaunchFlags& flags, const Given& given) {
  const auto colon = given.value.find(':');
  const auto low = given.value.substr(0, colon);
  if (colon != std::string::npos && given.value.substr(colon + 1) != low) {
    throw UserError(fmt::format(
        "{} {}: a run has a fixed number of nodes (elastic sizes are not supported): type "
        "--nnodes {}",
        given.origin, given.value, given.value.substr(colon + 1)));
  }
  flags.nnodes = need_number(low, given.origin, 1, kMostNodes);
}

// host, host:port, [address]:port; torchrun writes `localhost:0` for "any port".
void set_endpoint(LaunchFlags& flags, const Given& given) {
  std::string_view text = given.value;
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[') && text.find(']') != std::string_view::npos) {
    const auto close = text.find(']');
    endpoint.host = text.substr(1, close - 1);
    if (close + 1 < text.size() && text[close + 1] == ':') port = text.substr(close + 2);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    endpoint.host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
  } else {
    endpoint.host = text;
  }
  if (endpoint.host.empty()) refuse(given, fmt::format("'{}' names no host", given.value));
  if (!port.empty()) endpoint.port = need_number(port, given.origin, 0, kMostPort);
  if (endpoint.port == 0) endpoint.port.reset();
  flags.rdzv_endpoint = endpoint;
}

void set_conf(LaunchFlags& flags, const Given& given) {
  constexpr std::string_view kKey = "join_timeout=";
  for (const auto& part : split(given.value, ',')) {
    if (!part.starts_with(kKey)) continue;
    const auto origin = fmt::format("{} join_timeout", given.origin);
    flags.join_timeout =
        std::chrono::seconds(need_number(part.substr(kKey.size()), origin, 1, kMost));
  }
}

void check_signals(LaunchFlags& /*flags*/, const Given& given) {
  constexpr auto kKnown = std::to_array<std::string_view>(
      {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"});
  for (const auto& name : split(given.value, ',')) {
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    refuse(given, fmt::format("no signal '{}' (known: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, "
                              "SIGUSR2)",
                              name));
  }
}

void set_numa(LaunchFlags& flags, const Given& given) {
  flags.numa = read_numa_binding(given.value);
  if (flags.numa) return;
  refuse(given, fmt::format("'{}' is none of node, socket, exclusive, core-complex", given.value));
}

void check_launcher(LaunchFlags& /*flags*/, const Given& given) {
  const auto& value = given.value;
  if (value == "pdsh" || value == "ssh") return;  // both mean: over ssh
  if (value == "slurm") {
    refuse(given, "for slurm type `srun --ntasks-per-node=N skein train ...`");
  }
  if (value == "openmpi" || value == "mpich" || value == "impi" || value == "mvapich") {
    refuse(given, fmt::format("for {} type `mpirun -np N skein train ...`", value));
  }
  refuse(given, fmt::format("'{}' is none of pdsh, ssh (a hostfile's nodes are started over "
                            "ssh)",
                            value));
}

void set_rank_logs(LaunchFlags& flags, const Given& given) {
  if (given.value == "None") return;  // DeepSpeed's default
  flags.log_dir = given.value;
  flags.redirects = "3";
}

void refuse_module(LaunchFlags& /*flags*/, const Given& given) {
  refuse(given, "runs a Python module; skein is one native program: drop it");
}

void refuse_elastic(LaunchFlags& /*flags*/, const Given& given) {
  refuse(given, "elastic sizes are not supported: a run has a fixed number of nodes (--nnodes)");
}

void refuse_autotuning(LaunchFlags& /*flags*/, const Given& given) {
  refuse(given, "not supported; `skein plan CONFIG.yaml` tells what would fit");
}

void refuse_core_list(LaunchFlags& /*flags*/, const Given& given) {
  refuse(given, "not supported: type --numa-binding exclusive, or `taskset -c LIST skein train`");
}

void refuse_launcher_args(LaunchFlags& /*flags*/, const Given& given) {
  refuse(given, "not supported: options of ssh belong into ~/.ssh/config");
}

// Sets a member to the text as it is.
template <auto Member>
void set_text(LaunchFlags& flags, const Given& given) {
  if (given.value.empty()) refuse(given, "needs a value");
  flags.*Member = given.value;
}

template <auto Member, int Low, int High>
void set_number(LaunchFlags& flags, const Given& given) {
  flags.*Member = number_or_unset(given, Low, High);
}

template <auto Member>
void set_switch(LaunchFlags& flags, const Given& given) {
  flags.*Member = is_on(given);
}

void set_num_gpus(LaunchFlags& flags, const Given& given) {
  if (given.value != "-1") flags.num_gpus = given.value;
}

void set_bind_cores(LaunchFlags& flags, const Given& given) {
  if (is_on(given) && !flags.numa) flags.numa = NumaBinding::kExclusive;
}

using F = LaunchFlags;
constexpr auto kRules = std::to_array<FlagRule>({
    {"--nproc-per-node", true, set_text<&F::nproc_per_node>},
    {"--num-gpus", true, set_num_gpus},
    {"--nnodes", true, set_nnodes},
    {"--num-nodes", true, set_number<&F::num_nodes, 1, kMostNodes>},
    {"--node-rank", true, set_number<&F::node_rank, 0, kMostNodes - 1>},
    {"--master-addr", true, set_text<&F::master_addr>},
    {"--master-port", true, set_number<&F::master_port, 0, kMostPort>},
    {"--rdzv-endpoint", true, set_endpoint},
    {"--rdzv-conf", true, set_conf},
    {"--rdzv-backend", true, no_effect},
    {"--rdzv-id", true, no_effect},
    {"--standalone", false, set_switch<&F::standalone>},
    {"--max-restarts", true, set_number<&F::max_restarts, 0, kMost>},
    {"--monitor-interval", true, no_effect},
    {"--start-method", true, no_effect},
    {"--role", true, no_effect},
    {"--log-dir", true, set_text<&F::log_dir>},
    {"--redirects", true, set_text<&F::redirects>},
    {"-r", true, set_text<&F::redirects>},
    {"--tee", true, set_text<&F::tee>},
    {"-t", true, set_text<&F::tee>},
    {"--local-ranks-filter", true, set_text<&F::local_ranks_filter>},
    {"--local-addr", true, set_text<&F::local_addr>},
    {"--numa-binding", true, set_numa},
    {"--signals-to-handle", true, check_signals},
    {"--local-rank", true, no_effect},
    {"--no-python", false, no_effect},
    {"--use-env", false, no_effect},
    {"-m", false, refuse_module},
    {"--module", false, refuse_module},
    {"--hostfile", true, set_text<&F::hostfile>},
    {"-H", true, set_text<&F::hostfile>},
    {"--include", true, set_text<&F::include>},
    {"-i", true, set_text<&F::include>},
    {"--exclude", true, set_text<&F::exclude>},
    {"-e", true, set_text<&F::exclude>},
    {"--launcher", true, check_launcher},
    {"--launcher-args", true, refuse_launcher_args},
    {"--ssh-port", true, set_number<&F::ssh_port, 1, kMostPort>},
    {"--no-ssh", false, set_switch<&F::no_ssh>},
    {"--no-ssh-check", false, no_effect},
    {"--no-local-rank", false, no_effect},
    {"--force-multi", false, no_effect},
    {"--save-pid", false, no_effect},
    {"--bind-cores-to-rank", false, set_bind_cores},
    {"--bind-core-list", true, refuse_core_list},
    {"--enable-each-rank-log", true, set_rank_logs},
    {"--autotuning", true, refuse_autotuning},
    {"--elastic-training", false, refuse_elastic},
    {"--secret-file", true, set_text<&F::secret_file>},
});

const FlagRule* find_rule(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const FlagRule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : found;
}

// --nproc-per-node: PET_NPROC_PER_NODE.
std::string variable_of(std::string_view flag) {
  std::string name = "PET_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

auto members(LaunchFlags& flags) {
  return std::tie(flags.nproc_per_node, flags.num_gpus, flags.nnodes, flags.num_nodes,
                  flags.node_rank, flags.master_addr, flags.master_port, flags.rdzv_endpoint,
                  flags.join_timeout, flags.max_restarts, flags.log_dir, flags.redirects, flags.tee,
                  flags.local_ranks_filter, flags.local_addr, flags.numa, flags.hostfile,
                  flags.include, flags.exclude, flags.ssh_port, flags.secret_file, flags.standalone,
                  flags.no_ssh);
}

}  // namespace

SplitArguments split_launch_flags(std::span<const std::string> arguments) {
  SplitArguments result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    const auto equals = argument.find('=');
    const auto* rule = argument.starts_with('-') ? find_rule(argument.substr(0, equals)) : nullptr;
    if (rule == nullptr) {
      result.rest.push_back(argument);
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (rule->takes_value) {
      if (i + 1 == arguments.size()) throw UserError(fmt::format("{} needs a value", argument));
      value = arguments[++i];
    }
    rule->apply(result.flags, {std::string(rule->name), value});
  }
  return result;
}

LaunchFlags with_variables(LaunchFlags flags, const Environment& environment) {
  LaunchFlags defaults;
  for (const auto& rule : kRules) {
    if (!rule.name.starts_with("--")) continue;
    const auto name = variable_of(rule.name);
    const auto value = find_variable(environment, name);
    if (value) rule.apply(defaults, {name, *value});
  }
  std::apply(
      [&](auto&... mine) {
        std::apply([&](auto&... theirs) { ((mine = mine ? mine : theirs), ...); },
                   members(defaults));
      },
      members(flags));
  return flags;
}

std::vector<int> read_streams(std::string_view text, int local_ranks, std::string_view origin) {
  const auto expected = [&] {
    return UserError(fmt::format(
        "{} {}: expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or `0:1,1:3` by local rank",
        origin, text));
  };
  if (const auto all = read_number(text, 0, 3)) {
    return std::vector<int>(static_cast<size_t>(local_ranks), *all);
  }
  std::vector<int> bits(static_cast<size_t>(local_ranks), 0);
  for (const auto& part : split(text, ',')) {
    const auto colon = part.find(':');
    if (colon == std::string::npos) throw expected();
    const auto rank = read_number(part.substr(0, colon), 0, kMost);
    const auto value = read_number(part.substr(colon + 1), 0, 3);
    if (!rank || !value) throw expected();
    if (*rank >= local_ranks) {
      throw UserError(fmt::format("{} {}: there is no local rank {} (there are {})", origin, text,
                                  *rank, local_ranks));
    }
    bits[static_cast<size_t>(*rank)] = *value;
  }
  return bits;
}

std::vector<std::string> flag_names() {
  std::vector<std::string> names;
  for (const auto& rule : kRules) {
    if (rule.name.starts_with("--")) names.emplace_back(rule.name);
  }
  return names;
}

}  // namespace skein::launch
