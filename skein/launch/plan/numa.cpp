// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/plan/numa.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "skein/launch/plan/number.h"

namespace skein::launch {
namespace {

namespace fs = std::filesystem;

constexpr auto kWords = std::to_array<std::pair<NumaBinding, const char*>>({
    {NumaBinding::kNone, "none"},
    {NumaBinding::kNode, "node"},
    {NumaBinding::kSocket, "socket"},
    {NumaBinding::kExclusive, "exclusive"},
    {NumaBinding::kCoreComplex, "core-complex"},
});
constexpr int kMostCpus = 65535;

// One line of the kernel's; empty when there is no such file.
std::string read_line(const fs::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Cores by NUMA node; nodes of memory alone are left out.
std::map<int, std::vector<int>> read_nodes(const fs::path& system) {
  std::map<int, std::vector<int>> nodes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(system / "devices/system/node", ignored)) {
    const auto name = entry.path().filename().string();
    const auto number =
        name.starts_with("node") ? read_number(name.substr(4), 0, kMostCpus) : std::nullopt;
    if (!number) continue;
    auto cpus = read_cpu_list(read_line(entry.path() / "cpulist"));
    if (!cpus.empty()) nodes.emplace(*number, std::move(cpus));
  }
  return nodes;
}

fs::path cpu_folder(const Topology& topology, int cpu) {
  return topology.system / fmt::format("devices/system/cpu/cpu{}", cpu);
}

// Of those on `cpu`'s last-level cache; the numbers of the caches run from 0 up.
std::vector<int> cache_sharers(const Topology& topology, int cpu) {
  return read_cpu_list(read_line(cpu_folder(topology, cpu) / "cache/index3/shared_cpu_list"));
}

std::string socket_of(const Topology& topology, int cpu) {
  return read_line(cpu_folder(topology, cpu) / "topology/physical_package_id");
}

std::vector<int> cpus_of_socket(const Topology& topology, const std::vector<int>& node,
                                const std::map<int, std::vector<int>>& nodes) {
  const auto socket = socket_of(topology, node.front());
  std::vector<int> cpus;
  for (const auto& [number, members] : nodes) {
    if (socket_of(topology, members.front()) != socket) continue;
    cpus.insert(cpus.end(), members.begin(), members.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<int> keep_allowed(std::vector<int> cpus, const Topology& topology) {
  const auto& allowed = topology.allowed;
  if (allowed.empty()) return cpus;
  std::erase_if(cpus, [&](int cpu) {
    return std::find(allowed.begin(), allowed.end(), cpu) == allowed.end();
  });
  return cpus;
}

// Share `index` of `count`, whole cores: hardware threads of a core stay together.
std::vector<int> take_share(const Topology& topology, const std::vector<int>& cpus, size_t index,
                            size_t count) {
  std::map<int, std::vector<int>> cores;
  for (const int cpu : cpus) {
    const auto siblings =
        read_cpu_list(read_line(cpu_folder(topology, cpu) / "topology/thread_siblings_list"));
    cores[siblings.empty() ? cpu : siblings.front()].push_back(cpu);
  }
  if (cores.size() < count) return cpus;  // fewer cores than ranks: all share them
  const size_t begin = cores.size() * index / count;
  const size_t end = cores.size() * (index + 1) / count;
  std::vector<int> share;
  size_t position = 0;
  for (const auto& [first, members] : cores) {
    if (position >= begin && position < end) {
      share.insert(share.end(), members.begin(), members.end());
    }
    ++position;
  }
  std::sort(share.begin(), share.end());
  return share;
}

std::vector<int> take_complex(const Topology& topology, const std::vector<int>& cpus,
                              size_t index) {
  std::vector<std::vector<int>> complexes;
  for (const int cpu : cpus) {
    auto sharers = keep_allowed(cache_sharers(topology, cpu), topology);
    if (sharers.empty()) return cpus;  // the kernel tells nothing about caches
    if (std::find(complexes.begin(), complexes.end(), sharers) == complexes.end()) {
      complexes.push_back(std::move(sharers));
    }
  }
  return complexes.empty() ? cpus : complexes[index % complexes.size()];
}

// The node of every local rank: its GPU's, else spread evenly.
std::vector<int> nodes_of_ranks(const Topology& topology,
                                const std::map<int, std::vector<int>>& nodes, int local_ranks) {
  std::vector<int> numbers;
  for (const auto& [number, cpus] : nodes) numbers.push_back(number);
  std::vector<int> result;
  for (int rank = 0; rank < local_ranks; ++rank) {
    const auto index = static_cast<size_t>(rank);
    int node = numbers[index * numbers.size() / static_cast<size_t>(local_ranks)];
    if (index < topology.gpu_pci_ids.size()) {
      const auto path =
          topology.system / "bus/pci/devices" / topology.gpu_pci_ids[index] / "numa_node";
      const auto told = read_number(read_line(path), 0, kMostCpus);
      if (told && nodes.contains(*told)) node = *told;
    }
    result.push_back(node);
  }
  return result;
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
    std::transform(id.begin(), id.end(), id.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    ids.push_back(std::move(id));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::optional<NumaBinding> read_numa_binding(std::string_view word) {
  for (const auto& [binding, text] : kWords) {
    if (word == text || (word == "core_complex" && binding == NumaBinding::kCoreComplex)) {
      return binding;
    }
  }
  return std::nullopt;
}

const char* to_text(NumaBinding binding) {
  for (const auto& [value, text] : kWords) {
    if (value == binding) return text;
  }
  return "none";
}

std::vector<int> read_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const auto& part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto low = read_number(part.substr(0, dash), 0, kMostCpus);
    const auto high =
        dash == std::string::npos ? low : read_number(part.substr(dash + 1), 0, kMostCpus);
    if (!low || !high) return {};
    for (int cpu = *low; cpu <= *high; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

Topology read_topology(bool with_gpus, const std::string& visible_devices) {
  Topology topology;
  topology.allowed = allowed_cpus();
  if (!with_gpus) return topology;
  const auto all = list_gpus();
  if (visible_devices.empty()) {
    topology.gpu_pci_ids = all;
    return topology;
  }
  for (const auto& word : split(visible_devices, ',')) {
    const auto index = read_number(word, 0, kMostCpus);
    if (!index || static_cast<size_t>(*index) >= all.size()) {
      topology.gpu_pci_ids.clear();  // named by UUID: which is which is not known here
      return topology;
    }
    topology.gpu_pci_ids.push_back(all[static_cast<size_t>(*index)]);
  }
  return topology;
}

int count_numa_nodes(const fs::path& system) {
  return std::max(1, static_cast<int>(read_nodes(system).size()));
}

std::vector<int> cpus_for(NumaBinding binding, int local_rank, int local_ranks,
                          const Topology& topology) {
  const auto nodes = read_nodes(topology.system);
  const bool whole_nodes = binding == NumaBinding::kNode || binding == NumaBinding::kSocket;
  if (binding == NumaBinding::kNone || nodes.empty()) return {};
  if (whole_nodes && nodes.size() == 1) return {};
  const auto placed = nodes_of_ranks(topology, nodes, local_ranks);
  const int node = placed.at(static_cast<size_t>(local_rank));
  auto cpus = keep_allowed(nodes.at(node), topology);
  if (cpus.empty()) return {};
  const auto mine = placed.begin() + local_rank;
  const auto index = static_cast<size_t>(std::count(placed.begin(), mine, node));
  const auto count = static_cast<size_t>(std::count(placed.begin(), placed.end(), node));
  switch (binding) {
    case NumaBinding::kSocket:
      return keep_allowed(cpus_of_socket(topology, nodes.at(node), nodes), topology);
    case NumaBinding::kExclusive:
      return take_share(topology, cpus, index, count);
    case NumaBinding::kCoreComplex:
      return take_complex(topology, cpus, index);
    default:
      return cpus;
  }
}

std::vector<int> cpus_for(const LaunchPlan& plan, int local_rank) {
  if (plan.numa == NumaBinding::kNone) return {};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto devices = plan.visible_devices.value_or(visible == nullptr ? "" : visible);
  const auto topology = read_topology(plan.device == config::Device::kCuda, devices);
  return cpus_for(plan.numa, local_rank, plan.local_ranks, topology);
}

}  // namespace skein::launch
