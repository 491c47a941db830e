// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which ranks does a run have, and who starts them?

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::launch {

// This process is one rank that another launcher has started.
struct ForeignRank {
  std::string launcher;  // "torchrun", "srun", "Open MPI", …
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;
  int master_port = 0;           // 0: a free one (a size of 1 only)
  bool store_is_served = false;  // torchrun's agent listens there; otherwise rank 0 does
  int gpu = 0;                   // which of the visible GPUs is its own
  std::string attempt = "0";     // TORCHELASTIC_RESTART_COUNT or the like: keeps starts apart
};

// A line of a hostfile after --include and --exclude.
struct Host {
  std::string name;
  std::vector<int> slots;  // GPU numbers, or ranks on CPUs
};

// Where the output of the ranks goes. Bits: 1 stdout, 2 stderr.
struct OutputPlan {
  std::optional<std::filesystem::path> log_dir;
  std::vector<int> redirects;  // by local rank: to a file only
  std::vector<int> tees;       // by local rank: to a file and to the terminal
  std::vector<int> shown;      // --local-ranks-filter: local ranks on the terminal; empty: all
};

enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };

struct LaunchPlan {
  int local_ranks = 1;
  config::Device device = config::Device::kCpu;  // kCuda: rank i takes visible GPU i; never kAuto
  std::string omp_num_threads = "1";  // of each rank: what the user has set, else cores / ranks
  std::string summary;                // "2 CPU ranks on this machine (--nproc-per-node)"
  std::vector<std::string> warnings;

  int nodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one (one machine only)
  std::optional<std::filesystem::path> secret_file;
  std::optional<ForeignRank> foreign;  // start nothing: be this rank
  std::vector<Host> hosts;             // not empty: start the nodes there over ssh
  int ssh_port = 0;                    // 0: ssh's own
  int max_restarts = 0;
  OutputPlan output;
  NumaBinding numa = NumaBinding::kNone;
  std::optional<std::string> local_addr;       // --local-addr: what others reach this machine by
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES of the ranks, if narrowed
  std::optional<std::chrono::seconds> join_timeout;  // --rdzv-conf join_timeout=…

  int size() const;  // ranks on all nodes
};

// What starts node `node` of a plan for several when typed there, after `skein train`. The
// secret and the visible devices travel otherwise.
std::vector<std::string> node_flags(const LaunchPlan& plan, int node);

}  // namespace skein::launch
