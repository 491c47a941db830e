# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A first update that runs out of memory: under `auto` the run goes on with less, else it ends with advice."""
import json
import os
import re
import time
import unittest

from harness import Workspace, finish, llama, relative, run_skein

ROWS = 32  # of a rank and update
TOKENS = 256
WIDE = llama(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, max_position_embeddings=TOKENS)


def data_of_ranks(process):
    """The most bytes of private memory that a worker of the launcher has had, seen until it ends."""
    most = 0
    while process.poll() is None:
        for folder in os.listdir("/proc"):
            try:
                if not folder.isdigit() or os.getsid(int(folder)) != process.pid:
                    continue
                with open(f"/proc/{folder}/comm", encoding="ascii") as name, \
                        open(f"/proc/{folder}/status", encoding="ascii") as status:
                    if "worker" in name.read():
                        most = max(most, int(re.search(r"VmData:\s+(\d+) kB", status.read())[1]) * 1024)
            except (OSError, TypeError):
                continue  # ended meanwhile
        time.sleep(0.005)
    return most


class Memory(unittest.TestCase):
    def setUp(self):
        self.work = Workspace(WIDE, num_blocks=2 * ROWS, block_size=TOKENS, max_steps=1, seed=3,
                              per_device_train_batch_size=ROWS, gradient_accumulation_steps=1)
        self.addCleanup(self.work.__exit__)
        self.limit = None

    def train(self, *words, code=0, ranks=1):
        limited = () if self.limit is None else ("sh", "-c", f'ulimit -d {self.limit // 1024}; exec "$0" "$@"')
        return run_skein(self.work.command(*words, ranks=ranks), self.work.folder, code, limited).stderr

    def allow(self, rows, *words, ranks=1, more=48 << 20):
        """As much memory as a micro-batch of so many rows takes, and a little more (or less)."""
        process = self.work.start(f"per_device_train_batch_size={rows}", f"gradient_accumulation_steps={ROWS // rows}",
                                  "output_dir=measured", "--fresh", *words, ranks=ranks)
        seen = data_of_ranks(process)
        finish(process, 0)
        self.limit = seen + more

    def record(self, output):
        return json.loads((self.work / output / ".skein-run").read_text())

    def test_the_micro_batch_shrinks_and_the_run_learns_the_same(self):
        self.train("output_dir=whole")
        expected = self.work.records("whole")[0]
        self.allow(ROWS // 4)
        said = self.train("output_dir=out", "save_steps=1")
        found = re.findall(r"ran out of memory in its first update .*: starting again with (.*)", said)
        self.assertTrue(found, said)
        self.assertRegex(found[0], f"^per_device_train_batch_size={ROWS // 2} gradient_accumulation_steps=2$")
        self.assertRegex(found[-1], f"^per_device_train_batch_size=({ROWS // 4}|{ROWS // 8}) ")
        record = self.work.records("out")[0]
        for key in ("loss", "grad_norm"):
            self.assertLess(relative(record[key], expected[key]), 1e-5)
        self.assertEqual(self.record("out")["given_up"], {"words": found[-1], "ranks": 1, "rows": ROWS})

        # The same command goes on there, and says so before it starts; so does the plan.
        said = self.train("output_dir=out", "max_steps=2")
        self.assertIn(found[-1] + ", since an earlier start ran out of memory", said)
        self.assertNotIn("starting again with", said)
        self.assertEqual(len(self.work.records("out")), 2)
        plan = run_skein(["plan", "c.yaml", "output_dir=out", "max_steps=3", "--nproc-per-node", 1], self.work.folder)
        self.assertIn(found[-1] + ", since an earlier start ran out of memory", plan.stdout)

    def test_all_ranks_start_again_together(self):
        self.allow(ROWS // 2, ranks=2)
        said = self.train("output_dir=out", ranks=2)
        self.assertIn("starting again with per_device_train_batch_size=16 gradient_accumulation_steps=2", said)
        self.assertEqual(self.record("out")["given_up"]["ranks"], 2)
        self.assertEqual(len(self.work.records("out")), 1)

    def test_without_auto_the_next_rung_is_named(self):
        self.allow(ROWS // 4)
        said = self.train("output_dir=out", "distributed_strategy=ddp", code=2)
        self.assertIn("the host's memory is full", said)
        self.assertIn("Take less at a time: per_device_train_batch_size=16 gradient_accumulation_steps=2 needs about ", said)
        self.assertNotIn("starting again", said)
        self.assertNotIn("given_up", self.record("out"))

    def test_where_nothing_is_left_the_run_ends(self):
        # Less than the last rung takes in its update, and more than the start of it.
        self.allow(1, "gradient_checkpointing=true", more=-(36 << 20))
        said = self.train("output_dir=out", code=2)
        self.assertIn("starting again with per_device_train_batch_size=1 gradient_accumulation_steps=32 "
                      "gradient_checkpointing=true", said)
        self.assertIn("nothing is left to give up", said)


if __name__ == "__main__":
    unittest.main()
