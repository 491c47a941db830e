# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Sums by node: the bytes that a node sends to others, counted on its interface.

Every node is a network namespace with one interface on a bridge; what its ranks say to each other, on
its loopback or through memory, is not counted. Joining is counted, and small.
"""
import os
import subprocess
import unittest

from harness import ENVIRONMENT, SKEIN, TIMEOUT

RANK = SKEIN.parent.parent / "tests/node_sums_rank"
ELEMENTS = 6 << 20  # bfloat16; a multiple of all world sizes here
TIMES = 4
QUIET = ENVIRONMENT | {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # the addresses have no names


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


@unittest.skipUnless(os.geteuid() == 0, "network namespaces with cables between them need root")
class NodeSums(unittest.TestCase):
    def make_nodes(self, count):
        """Namespaces whose interfaces meet on the bridge of a further one."""
        own = f"skein-{os.getpid()}"
        hub = f"{own}-hub"
        self.nodes = [f"{own}-{i}" for i in range(count)]
        for name in (hub, *self.nodes):
            ip("netns", "add", name)
            self.addCleanup(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for i, name in enumerate(self.nodes):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", hub)
            ip("-n", hub, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.214.7.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def sent(self, node):
        """Bytes that have left the node since it was made."""
        table = subprocess.run(["ip", "netns", "exec", self.nodes[node], "cat", "/proc/net/dev"], check=True,
                               capture_output=True, text=True).stdout
        for line in table.splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "eth0":
                return int(counters.split()[8])
        raise AssertionError("no eth0 in /proc/net/dev")

    def reduce(self, local_size, way, operation):
        """The most bytes that a node sends for one reduction, and what each rank prints."""
        before = [self.sent(node) for node in range(len(self.nodes))]
        ranks = []
        for rank in range(len(self.nodes) * local_size):
            node = rank // local_size
            words = [rank, len(self.nodes), local_size, "10.214.7.1", 29500, f"10.214.7.{node + 1}", way, operation,
                     ELEMENTS, TIMES]
            ranks.append(subprocess.Popen(["ip", "netns", "exec", self.nodes[node], RANK, *map(str, words)],
                                          env=QUIET, stdout=subprocess.PIPE, text=True))
            self.addCleanup(ranks[-1].kill)
        printed = [process.communicate(timeout=TIMEOUT)[0].split() for process in ranks]
        self.assertEqual({process.returncode for process in ranks}, {0})
        return max(self.sent(node) - before[node] for node in range(len(self.nodes))) / TIMES, printed

    def check(self, nodes, local_size):
        self.make_nodes(nodes)
        bound = 2 * ELEMENTS * (nodes - 1) / nodes
        scattered, shards = self.reduce(local_size, "by_node", "reduce_scatter")
        everywhere, sums = self.reduce(local_size, "by_node", "all_reduce")
        flat, other_shards = self.reduce(local_size, "flat", "reduce_scatter")
        print(f"{nodes} nodes of {local_size}: a node sends {scattered / bound:.4f} S(N-1)/N for a reduce_scatter, "
              f"{everywhere / bound:.4f} for an all_reduce; flat {flat / bound:.4f}")
        self.assertLessEqual(scattered, 1.05 * bound)
        self.assertLessEqual(everywhere, 2 * 1.05 * bound)
        self.assertGreater(scattered, 0.95 * bound, "the counter does not see the ranks")
        self.assertGreater(flat, 0.95 * local_size * bound, "nothing was to be gained")
        self.assertEqual(len({whole for _, whole in sums}), 1, "the ranks have different sums")
        self.assertEqual([[shard] for shard, _ in sums], shards)
        self.assertNotEqual(shards, other_shards, "it was summed flat")

    def test_2_nodes_of_3(self):
        self.check(nodes=2, local_size=3)

    def test_3_nodes_of_2(self):
        self.check(nodes=3, local_size=2)


if __name__ == "__main__":
    unittest.main()
