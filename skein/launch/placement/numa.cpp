// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/numa.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

namespace fs = std::filesystem;

constexpr auto kBindings = std::to_array<std::pair<NumaBinding, const char*>>({
    {NumaBinding::kNone, "none"},
    {NumaBinding::kNode, "node"},
    {NumaBinding::kSocket, "socket"},
    {NumaBinding::kExclusive, "exclusive"},
    {NumaBinding::kCoreComplex, "core-complex"},
});

// hwloc would load plugins of the distribution's, which start OpenCL and X11 clients: a launcher
// that forks wants neither, and our copy of hwloc is not theirs.
class NoPlugins {
 public:
  NoPlugins() {
    if (const char* path = std::getenv(kVariable)) before_ = path;
    ::setenv(kVariable, "/nonexistent", /*overwrite=*/1);
  }
  ~NoPlugins() {
    if (before_) {
      ::setenv(kVariable, before_->c_str(), /*overwrite=*/1);
    } else {
      ::unsetenv(kVariable);
    }
  }
  NoPlugins(const NoPlugins&) = delete;
  NoPlugins& operator=(const NoPlugins&) = delete;

 private:
  static constexpr const char* kVariable = "HWLOC_PLUGINS_PATH";
  std::optional<std::string> before_;
};

hwloc_topology* begin_topology() {
  const NoPlugins no_plugins;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw std::runtime_error("hwloc cannot be used");
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // The kernel's own description is enough: the x86 component would visit every processor.
  hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  return topology;
}

void load(hwloc_topology* topology) {
  if (hwloc_topology_load(topology) != 0) {
    throw std::runtime_error("hwloc cannot read how this machine's processors lie");
  }
}

// All objects of a type, in hwloc's order.
std::vector<hwloc_obj_t> objects(hwloc_topology* topology, hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    found.push_back(object);
  }
  return found;
}

// NUMA nodes that have processors; those of memory alone are left out.
std::vector<hwloc_obj_t> numa_nodes(hwloc_topology* topology) {
  auto nodes = objects(topology, HWLOC_OBJ_NUMANODE);
  std::erase_if(nodes, [](hwloc_obj_t node) { return hwloc_bitmap_iszero(node->cpuset) != 0; });
  return nodes;
}

// Gives bind_ranks() the parts of a machine as lists of the processors that may be used.
class Machine {
 public:
  Machine(const Topology& topology, const std::vector<int>& allowed)
      : topology_(topology.get()), allowed_(allowed), nodes_(numa_nodes(topology.get())) {}

  size_t count_nodes() const { return nodes_.size(); }

  // The place in the list of nodes of the one that a device hangs on; nothing when hwloc does not
  // know the device, or knows it only as part of the whole machine.
  std::optional<size_t> node_of_device(const std::string& pci_id) const {
    const auto device = hwloc_get_pcidev_by_busidstring(topology_, pci_id.c_str());
    if (device == nullptr) return std::nullopt;
    const auto place = hwloc_get_non_io_ancestor_obj(topology_, device);
    if (hwloc_bitmap_isequal(place->nodeset, hwloc_topology_get_topology_nodeset(topology_)) != 0)
      return std::nullopt;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (hwloc_bitmap_isset(place->nodeset, nodes_[i]->os_index) != 0) return i;
    }
    return std::nullopt;
  }

  std::vector<int> cpus_of_node(size_t node) const { return usable(nodes_[node]->cpuset); }

  std::vector<int> cpus_of_socket(size_t node) const {
    const auto socket = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, nodes_[node]);
    return usable(socket == nullptr ? nodes_[node]->cpuset : socket->cpuset);
  }

  // The node's parts of one kind, as far as they may be used: cores, last-level caches.
  std::vector<std::vector<int>> parts_of_node(size_t node, hwloc_obj_type_t type) const {
    std::vector<std::vector<int>> parts;
    for (const auto part : objects(topology_, type)) {
      if (hwloc_bitmap_intersects(part->cpuset, nodes_[node]->cpuset) == 0) continue;
      auto cpus = usable(part->cpuset);
      if (!cpus.empty()) parts.push_back(std::move(cpus));
    }
    return parts;
  }

 private:
  std::vector<int> usable(hwloc_const_cpuset_t set) const {
    std::vector<int> cpus;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
      if (allowed_.empty() || std::ranges::count(allowed_, cpu) > 0) cpus.push_back(cpu);
    }
    return cpus;
  }

  hwloc_topology* topology_;
  const std::vector<int>& allowed_;
  std::vector<hwloc_obj_t> nodes_;
};

// Share `index` of `count`, whole cores: hardware threads of a core stay together. With fewer cores
// than ranks all of them share the node.
std::vector<int> take_share(const Machine& machine, size_t node, size_t index, size_t count) {
  const auto cores = machine.parts_of_node(node, HWLOC_OBJ_CORE);
  if (cores.size() < count) return machine.cpus_of_node(node);
  std::vector<int> share;
  for (size_t i = cores.size() * index / count; i < cores.size() * (index + 1) / count; ++i) {
    share.insert(share.end(), cores[i].begin(), cores[i].end());
  }
  std::ranges::sort(share);
  return share;
}

std::vector<int> take_complex(const Machine& machine, size_t node, size_t index) {
  const auto caches = machine.parts_of_node(node, HWLOC_OBJ_L3CACHE);
  return caches.empty() ? machine.cpus_of_node(node) : caches[index % caches.size()];
}

// The node of every local rank: its GPU's, else spread evenly.
std::vector<size_t> nodes_of_ranks(const Machine& machine, const BindingRequest& request) {
  const auto ranks = static_cast<size_t>(request.local_ranks);
  std::vector<size_t> nodes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::optional<size_t> of_gpu;
    if (rank < request.gpu_pci_ids.size())
      of_gpu = machine.node_of_device(request.gpu_pci_ids[rank]);
    nodes.push_back(of_gpu.value_or(rank * machine.count_nodes() / ranks));
  }
  return nodes;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// The driver names a folder after each GPU, in bus order, which is CUDA's for GPUs of one kind.
std::vector<std::string> list_gpus() {
  std::vector<std::string> ids;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    auto id = entry.path().filename().string();
    std::ranges::transform(id, id.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    ids.push_back(std::move(id));
  }
  std::ranges::sort(ids);
  return ids;
}

// By local rank. Empty when the GPUs are named by UUID: which is which is not known here.
std::vector<std::string> visible_gpus(const std::string& visible_devices) {
  auto all = list_gpus();
  if (visible_devices.empty()) return all;
  std::vector<std::string> visible;
  for (const auto& word : split(visible_devices, ',')) {
    const auto index = read_number(word, 0, 65535);
    if (!index || static_cast<size_t>(*index) >= all.size()) return {};
    visible.push_back(all[static_cast<size_t>(*index)]);
  }
  return visible;
}

}  // namespace

std::optional<NumaBinding> read_numa_binding(std::string_view word) {
  for (const auto& [binding, text] : kBindings) {
    if (word == text || (word == "core_complex" && binding == NumaBinding::kCoreComplex)) {
      return binding;
    }
  }
  return std::nullopt;
}

const char* to_text(NumaBinding binding) {
  for (const auto& [value, text] : kBindings) {
    if (value == binding) return text;
  }
  return "none";
}

Topology::Topology() : topology_(begin_topology()) { load(topology_.get()); }

Topology::Topology(const std::string& xml) : topology_(begin_topology()) {
  // The terminating zero counts.
  if (hwloc_topology_set_xmlbuffer(topology_.get(), xml.c_str(), static_cast<int>(xml.size() + 1)))
    throw std::runtime_error("hwloc cannot read this XML");
  load(topology_.get());
}

void Topology::Destroy::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

int Topology::count_numa_nodes() const {
  return std::max(1, static_cast<int>(numa_nodes(topology_.get()).size()));
}

std::vector<std::vector<int>> bind_ranks(const Topology& topology, const BindingRequest& request) {
  std::vector<std::vector<int>> bound(static_cast<size_t>(request.local_ranks));
  const Machine machine(topology, request.allowed);
  const bool whole_nodes =
      request.binding == NumaBinding::kNode || request.binding == NumaBinding::kSocket;
  if (request.binding == NumaBinding::kNone || machine.count_nodes() == 0) return bound;
  if (whole_nodes && machine.count_nodes() == 1) return bound;
  const auto nodes = nodes_of_ranks(machine, request);
  for (size_t rank = 0; rank < bound.size(); ++rank) {
    const auto node = nodes[rank];
    const auto mine = nodes.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto index = static_cast<size_t>(std::count(nodes.begin(), mine, node));
    const auto count = static_cast<size_t>(std::ranges::count(nodes, node));
    if (machine.cpus_of_node(node).empty()) continue;
    switch (request.binding) {
      case NumaBinding::kSocket:
        bound[rank] = machine.cpus_of_socket(node);
        break;
      case NumaBinding::kExclusive:
        bound[rank] = take_share(machine, node, index, count);
        break;
      case NumaBinding::kCoreComplex:
        bound[rank] = take_complex(machine, node, index);
        break;
      default:
        bound[rank] = machine.cpus_of_node(node);
    }
  }
  return bound;
}

std::vector<std::vector<int>> bind_ranks(const LaunchPlan& plan) {
  BindingRequest request{
      .binding = plan.numa, .local_ranks = plan.local_ranks, .allowed = allowed_cpus()};
  if (plan.numa == NumaBinding::kNone)
    return std::vector<std::vector<int>>(static_cast<size_t>(plan.local_ranks));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (plan.device == config::Device::kCuda) {
    request.gpu_pci_ids =
        visible_gpus(plan.visible_devices.value_or(visible == nullptr ? "" : visible));
  }
  return bind_ranks(Topology(), request);
}

}  // namespace skein::launch
