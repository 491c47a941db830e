// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/numa.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace skein::launch {
namespace {

using Cpus = std::vector<int>;

// An object of hwloc's XML with a set of processors, on NUMA nodes `nodes`.
std::string object(const std::string& type, int index, unsigned cpus, unsigned nodes,
                   const std::string& inside = "", const std::string& more = "") {
  static int number = 0;
  return fmt::format(
      R"(<object type="{}" os_index="{}" cpuset="0x{:08x}" complete_cpuset="0x{:08x}" )"
      R"(nodeset="0x{:08x}" complete_nodeset="0x{:08x}" gp_index="{}" {}>{}</object>)",
      type, index, cpus, cpus, nodes, nodes, ++number, more, inside);
}

std::string core(int index, unsigned node) {
  const auto thread = [&](int cpu) { return object("PU", cpu, 1U << cpu, node); };
  return object("Core", index, 0x101U << index, node, thread(index) + thread(index + 8));
}

std::string socket(int index, const std::string& device) {
  const unsigned node = 1U << index;
  const unsigned cpus = 0x0f0fU << (4 * index);
  std::string inside = object("NUMANode", index, cpus, node);
  for (int pair = 2 * index; pair < 2 * index + 2; ++pair) {
    inside += object(
        "L3Cache", pair, 0x303U << (2 * pair), node,
        core(2 * pair, node) + core(2 * pair + 1, node),
        R"(cache_size="16777216" depth="3" cache_linesize="64" cache_associativity="0" cache_type="0")");
  }
  return object("Package", index, cpus, node, inside + device);
}

// Two sockets with one NUMA node each, 4 cores with 2 threads in each, a cache for two cores; a GPU
// on the second socket.
Topology two_sockets() {
  const std::string gpu =
      R"(<object type="Bridge" gp_index="900" bridge_type="0-1" depth="0" bridge_pci="0000:[3b-3b]">)"
      R"(<object type="PCIDev" gp_index="901" pci_busid="0000:3b:00.0" )"
      R"(pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="0.000000"/></object>)";
  const auto machine = object("Machine", 0, 0xffff, 3, socket(0, "") + socket(1, gpu),
                              R"(allowed_cpuset="0x0000ffff" allowed_nodeset="0x00000003")");
  // hwloc's own reader, which it has where libxml2 is not linked in, wants the heads on lines of
  // their own.
  return Topology(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
      "<topology version=\"2.0\">\n" +
      machine + "\n</topology>\n");
}

TEST(Numa, Bindings) {
  const auto topology = two_sockets();
  const auto cpus = [&](NumaBinding binding, size_t rank, int ranks) {
    return bind_ranks(topology, {.binding = binding, .local_ranks = ranks}).at(rank);
  };
  EXPECT_EQ(topology.count_numa_nodes(), 2);
  EXPECT_EQ(cpus(NumaBinding::kNone, 0, 2), Cpus{});
  EXPECT_EQ(cpus(NumaBinding::kNode, 1, 2), (Cpus{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(cpus(NumaBinding::kSocket, 0, 2), (Cpus{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(cpus(NumaBinding::kExclusive, 1, 4), (Cpus{2, 3, 10, 11}));
  EXPECT_EQ(cpus(NumaBinding::kCoreComplex, 3, 4), (Cpus{6, 7, 14, 15}));
  EXPECT_EQ(cpus(NumaBinding::kExclusive, 0, 32).size(), 8U) << "more ranks than cores";
}

TEST(Numa, ARankIsBoundNearItsGpuWhereItMayRun) {
  const auto topology = two_sockets();
  BindingRequest request{.binding = NumaBinding::kNode, .gpu_pci_ids = {"0000:3b:00.0"}};
  EXPECT_EQ(bind_ranks(topology, request).at(0), (Cpus{4, 5, 6, 7, 12, 13, 14, 15}));
  request.allowed = {5, 6};
  EXPECT_EQ(bind_ranks(topology, request).at(0), (Cpus{5, 6}));
  request.allowed = {1};
  EXPECT_EQ(bind_ranks(topology, request).at(0), Cpus{}) << "none of the node's may be used";
  request.allowed = {};
  request.gpu_pci_ids = {"0000:99:00.0"};
  EXPECT_EQ(bind_ranks(topology, request).at(0), (Cpus{0, 1, 2, 3, 8, 9, 10, 11})) << "unknown GPU";
}

TEST(Numa, ThisMachineCanBeRead) {
  const Topology topology;
  EXPECT_GE(topology.count_numa_nodes(), 1);
  const auto shares = bind_ranks(topology, {.binding = NumaBinding::kExclusive, .local_ranks = 1});
  EXPECT_FALSE(shares.at(0).empty());
  EXPECT_EQ(bind_ranks({.local_ranks = 3}).size(), 3U);
  EXPECT_THROW(Topology("<topology"), std::runtime_error);
}

}  // namespace
}  // namespace skein::launch
