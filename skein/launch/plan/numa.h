// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which cores may a rank run on?
//
// torchrun's --numa-binding: `node` all cores of the GPU's NUMA node; `socket` all cores of that
// node's socket; `exclusive` a share of the node's cores of its own; `core-complex` the cores that
// share one last-level cache. Without GPUs the ranks are spread over the nodes in their order.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/launch/plan/launch_plan.h"

namespace skein::launch {

std::optional<NumaBinding> read_numa_binding(std::string_view word);
const char* to_text(NumaBinding binding);

// `0-3,8` as the kernel writes it.
std::vector<int> read_cpu_list(std::string_view text);

// Where the kernel describes the machine; tests give another folder.
struct Topology {
  std::filesystem::path system = "/sys";
  std::vector<std::string> gpu_pci_ids;  // by local rank, `0000:3b:00.0`; empty: no GPUs
  std::vector<int> allowed;              // cores that this process may use; empty: all
};

// This machine: the GPUs in the driver's order, chosen by a value of CUDA_VISIBLE_DEVICES.
Topology read_topology(bool with_gpus, const std::string& visible_devices);

int count_numa_nodes(const std::filesystem::path& system = "/sys");

// For sched_setaffinity in the child. Empty: no binding, because none was asked for, or because
// there is one NUMA node only, where `node` and `socket` change nothing.
std::vector<int> cpus_for(NumaBinding binding, int local_rank, int local_ranks,
                          const Topology& topology = read_topology(false, ""));
// The same for a rank of a plan on this machine.
std::vector<int> cpus_for(const LaunchPlan& plan, int local_rank);

}  // namespace skein::launch
