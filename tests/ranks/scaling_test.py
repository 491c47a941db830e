# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein bench scaling`: every world of a launch under every strategy, beside its prediction."""
import json
import subprocess
import unittest

from harness import ENVIRONMENT, SKEIN, Workspace, finish, free_port, run_skein

FEW = ("--batch", "2", "--tokens", "16", "--steps", "2", "--warmup", "1", "--device", "cpu")


class Scaling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = cls.enterClassContext(Workspace())

    def bench(self, *words, code=0):
        return run_skein(["bench", "scaling", *words], self.work.folder, code)

    def refuse(self, *words, says):
        ended = self.bench("model", *FEW, *words, code=2)
        self.assertEqual(ended.stdout, "")
        self.assertIn(says, ended.stderr)
        self.assertNotIn("rank 0", ended.stderr)  # before any rank starts

    def check_rows(self, report, worlds):
        """(ranks, nodes) -> all strategies, on one rank the first alone."""
        rows = [(row["ranks"], row["nodes"], row["strategy"]) for row in report["rows"]]
        self.assertEqual(rows, [(ranks, nodes, strategy) for ranks, nodes in worlds
                                for strategy in (("ddp",) if ranks == 1 else ("ddp", "zero3"))])
        one = report["rows"][0]
        self.assertEqual((one["efficiency"], one["speed"], one["predicted"]), (1, 1, None))
        for row in report["rows"][1:]:
            self.assertAlmostEqual(row["speed"], row["ranks"] * row["efficiency"])
            self.assertAlmostEqual(row["tokens_per_second"], 32e3 * row["ranks"] / row["milliseconds"], delta=1)
            self.assertEqual(row["global_batch"], 2 * row["ranks"])
            self.assertGreater(row["predicted"]["efficiency"], 0)
            self.assertGreater(row["predicted"]["milliseconds"], 0)
            # DDP keeps everything on every rank, zero3 divides it.
            whole = row["peak_flat_bytes"] >= one["peak_flat_bytes"]
            self.assertEqual(whole, row["strategy"] == "ddp")

    def test_worlds_of_one_machine(self):
        ended = self.bench("model", *FEW, "--strategies", "ddp,zero3", "--nproc-per-node", "4", "--json")
        report = json.loads(ended.stdout)
        self.check_rows(report, [(1, 1), (2, 1), (4, 1)])
        self.assertEqual(report["links"], [])
        self.assertEqual([outlook["strategy"] for outlook in report["predicted"]], ["ddp", "zero3"])
        worlds = [(w["nodes"], w["ranks_per_node"], w["link_gbit"]) for w in report["predicted"][0]["worlds"]]
        self.assertEqual(worlds, [(1, 2, None), (1, 4, None), (1, 8, None), (2, 4, 10), (4, 4, 10), (2, 4, 100), (4, 4, 100)])

    def test_two_machines_measure_their_link_first(self):
        port = free_port()
        nodes = [subprocess.Popen([SKEIN, "bench", "scaling", "model", *FEW, "--strategies=ddp,zero3", "--json", "--nnodes", "2",
                                   "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port),
                                   "--nproc-per-node", "2"], cwd=self.work.folder, env=ENVIRONMENT,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  start_new_session=True) for node in (0, 1)]
        first, second = (finish(node, 0) for node in nodes)
        self.assertEqual(second.stdout, "")
        report = json.loads(first.stdout)
        self.check_rows(report, [(1, 1), (2, 1), (4, 2)])
        link, = report["links"]
        self.assertEqual(link["nodes"], [0, 1])
        self.assertGreater(link["gbit_per_second"], 0)
        self.assertGreater(link["latency_microseconds"], 0)
        self.assertLess(first.stderr.index("link: nodes 0 and 1"), first.stderr.index("1 rank, ddp"))

    def test_a_table_for_people(self):
        ended = self.bench("model", *FEW, "--ranks=2", "--strategies=zero1", "--nproc-per-node", "2")
        self.assertIn("ranks  strategy", ended.stdout)
        self.assertIn("2      zero1", ended.stdout)
        self.assertNotIn("efficiency, predicted", ended.stdout)  # nobody knows how long one rank takes

    def test_wrong_words(self):
        self.refuse("--ranks", "1,two", says="--ranks: 'two' is no number of ranks")
        self.refuse("--ranks", "3", "--nproc-per-node", "4", says="3 is no part of the 4 ranks of this launch")
        self.refuse("--strategies", "zero4", says="'zero4' is none of ddp, zero1, zero2, zero3")
        self.refuse("--rank", "2", says="did you mean '--ranks'")
        self.refuse("other", says="takes one MODEL folder, not 2")
        ended = self.bench("nowhere", *FEW, code=2)
        self.assertIn("'nowhere' does not exist", ended.stderr)

    def test_worlds_that_are_neither_part_of_a_machine_nor_whole_ones(self):
        port = free_port()
        nodes = [subprocess.Popen([SKEIN, "bench", "scaling", "model", *FEW, "--ranks=2", "--nnodes", "2", "--node-rank", str(node),
                                   "--master-addr", "127.0.0.1", "--master-port", str(port), "--nproc-per-node", "3"],
                                  cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, start_new_session=True) for node in (0, 1)]
        # The rank that comes to it first says so, on either machine.
        said = "".join(finish(node, 2).stderr for node in nodes)
        self.assertIn("the 2 x 3 ranks of this launch cannot be divided into worlds of 2 (but of 1, 3, 6)", said)


if __name__ == "__main__":
    unittest.main()
