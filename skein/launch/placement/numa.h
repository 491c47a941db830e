// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which processors may a rank run on?
//
// torchrun's --numa-binding: `node` all processors of the GPU's NUMA node; `socket` all of that
// node's socket; `exclusive` a share of the node's cores of its own; `core-complex` those that
// share one last-level cache. Without GPUs the ranks are spread over the nodes in their order.
//
// A processor is what the kernel numbers: one hardware thread of a core.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/launch/placement/launch_plan.h"

struct hwloc_topology;

namespace skein::launch {

std::optional<NumaBinding> read_numa_binding(std::string_view word);
const char* to_text(NumaBinding binding);

// How processors, caches, memory and devices of a machine lie to each other, as hwloc tells it.
class Topology {
 public:
  // This machine. Takes about 20 ms, so read it only where a binding is asked for; call before any
  // other thread exists.
  Topology();
  // Another machine, as hwloc's `lstopo --of xml` writes it. Throws std::runtime_error.
  explicit Topology(const std::string& xml);

  int count_numa_nodes() const;  // that have processors; at least 1
  hwloc_topology* get() const { return topology_.get(); }

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  std::unique_ptr<hwloc_topology, Destroy> topology_;
};

struct BindingRequest {
  NumaBinding binding = NumaBinding::kNone;
  int local_ranks = 1;
  std::vector<std::string> gpu_pci_ids = {};  // by local rank, `0000:3b:00.0`; empty: no GPUs
  std::vector<int> allowed = {};              // processors that may be used; empty: all
};

// The processors of each local rank, for sched_setaffinity in the child. An empty list is no
// binding: none was asked for, or the machine has one NUMA node only, where `node` and `socket`
// change nothing.
std::vector<std::vector<int>> bind_ranks(const Topology& topology, const BindingRequest& request);
// The same for the ranks of a plan on this machine; like Topology(), before any other thread.
std::vector<std::vector<int>> bind_ranks(const LaunchPlan& plan);

}  // namespace skein::launch
