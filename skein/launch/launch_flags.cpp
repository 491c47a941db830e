// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/launch_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

enum class Meaning {
  kNprocPerNode,
  kNumGpus,
  kNoEffect,  // on one machine: a free port is chosen, nobody is to be met
  kOnly,      // accepted with the values in `allowed`, which are what this version does
  kLater,     // known, not built yet
};

struct FlagRule {
  std::string_view name;
  bool takes_value;
  Meaning meaning;
  std::string_view allowed = "";  // between spaces
};

constexpr auto kRules = std::to_array<FlagRule>({
    {"--nproc-per-node", true, Meaning::kNprocPerNode},
    {"--num-gpus", true, Meaning::kNumGpus},
    {"--standalone", false, Meaning::kNoEffect},
    {"--master-addr", true, Meaning::kNoEffect},
    {"--master-port", true, Meaning::kNoEffect},
    {"--local-rank", true, Meaning::kNoEffect},
    {"--rdzv-backend", true, Meaning::kNoEffect},
    {"--rdzv-endpoint", true, Meaning::kNoEffect},
    {"--rdzv-id", true, Meaning::kNoEffect},
    {"--rdzv-conf", true, Meaning::kNoEffect},
    {"--monitor-interval", true, Meaning::kNoEffect},
    {"--nnodes", true, Meaning::kOnly, " 1 1:1 "},
    {"--num-nodes", true, Meaning::kOnly, " 1 "},
    {"--node-rank", true, Meaning::kOnly, " 0 "},
    {"--max-restarts", true, Meaning::kOnly, " 0 "},
    {"--hostfile", true, Meaning::kLater},
    {"-H", true, Meaning::kLater},
    {"--include", true, Meaning::kLater},
    {"-i", true, Meaning::kLater},
    {"--exclude", true, Meaning::kLater},
    {"-e", true, Meaning::kLater},
    {"--secret-file", true, Meaning::kLater},
    {"--log-dir", true, Meaning::kLater},
    {"--redirects", true, Meaning::kLater},
    {"-r", true, Meaning::kLater},
    {"--tee", true, Meaning::kLater},
    {"-t", true, Meaning::kLater},
    {"--local-ranks-filter", true, Meaning::kLater},
    {"--local-addr", true, Meaning::kLater},
    {"--numa-binding", true, Meaning::kLater},
    {"--signals-to-handle", true, Meaning::kLater},
    {"--launcher", true, Meaning::kLater},
    {"--ssh-port", true, Meaning::kLater},
    {"--no-ssh", false, Meaning::kLater},
    {"--no-ssh-check", false, Meaning::kLater},
    {"--bind-cores-to-rank", false, Meaning::kLater},
    {"--enable-each-rank-log", true, Meaning::kLater},
});

const FlagRule* find_rule(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const FlagRule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : found;
}

void apply(const FlagRule& rule, const std::string& value, LaunchFlags& flags) {
  switch (rule.meaning) {
    case Meaning::kNprocPerNode:
      flags.nproc_per_node = value;
      return;
    case Meaning::kNumGpus:
      flags.num_gpus = value;
      return;
    case Meaning::kNoEffect:
      return;
    case Meaning::kOnly:
      if (rule.allowed.find(fmt::format(" {} ", value)) != std::string_view::npos) return;
      throw UserError(
          fmt::format("{} {}: known, not supported by this version yet (one machine, no restarts)",
                      rule.name, value));
    case Meaning::kLater:
      throw UserError(fmt::format("{}: known, not supported by this version yet", rule.name));
  }
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
    apply(*rule, value, result.flags);
  }
  return result;
}

}  // namespace skein::launch
