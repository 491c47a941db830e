// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which arguments say how to start ranks? torchrun's and DeepSpeed's names, dash or underscore.
//
// The rest belongs to the configuration and is handed on in its order. A flag may also come from
// the variable PET_<NAME>, as in torchrun; what was typed wins.

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/launch/placement/launch_plan.h"
#include "skein/launch/placement/variables.h"

namespace skein::launch {

struct Endpoint {
  std::string host;
  std::optional<int> port;
};

struct LaunchFlags {
  std::optional<std::string> nproc_per_node;  // a number, auto, gpu, cpu
  std::optional<std::string> num_gpus;        // a number
  std::optional<int> nnodes;
  std::optional<int>
      num_nodes;  // the same in DeepSpeed's words; with a hostfile: its first so many
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::optional<Endpoint> rdzv_endpoint;  // another way to say both
  std::optional<std::chrono::seconds> join_timeout;
  std::optional<int> max_restarts;
  std::optional<std::filesystem::path> log_dir;
  std::optional<std::string> redirects;  // `3`, or `0:1,1:3` by local rank
  std::optional<std::string> tee;
  std::optional<std::string> local_ranks_filter;  // `0,2`
  std::optional<std::string> local_addr;
  std::optional<NumaBinding> numa;
  std::optional<std::filesystem::path> hostfile;
  std::optional<std::string> include;
  std::optional<std::string> exclude;
  std::optional<int> ssh_port;
  std::optional<std::filesystem::path> secret_file;
  std::optional<bool> standalone;
  std::optional<bool> no_ssh;
};

struct SplitArguments {
  LaunchFlags flags;
  std::vector<std::string> rest;
};

// Throws UserError for a flag without its value, with one that makes no sense, and for one that
// asks for what skein does not do.
SplitArguments split_launch_flags(std::span<const std::string> arguments);

// Fills what was not typed from PET_<NAME>.
LaunchFlags with_variables(LaunchFlags flags, const Environment& environment);

// By local rank: `3` for all, or `0:1,1:3`. `origin` begins the message of a UserError.
std::vector<int> read_streams(std::string_view text, int local_ranks, std::string_view origin);

// All that begin with two dashes, for suggestions.
std::vector<std::string> flag_names();

}  // namespace skein::launch
