# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""profile_steps: a trace of every rank, for chrome://tracing, and one table of time and FLOPs."""
import json
import unittest
from itertools import pairwise

from harness import Workspace, llama

PHASES = {"data", "forward", "backward", "optimizer", "evaluate", "save", "other"}


class Traces(unittest.TestCase):
    def workspace(self, model=None, **keys):
        return Workspace(model, **dict(num_blocks=40, global_batch_size=8, max_steps=6, eval_file="text.txt", eval_strategy="steps",
                                eval_steps=4, save_steps=4, report_to="none") | keys)

    def trace(self, work, name):
        """category -> names of its spans, of which each must have a place in time"""
        trace = json.loads((work / name).read_text())
        self.assertEqual(trace["otherData"]["spans_left_out"], 0)
        found = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "M":
                continue
            self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
            found.setdefault(event["cat"], set()).add(event["name"])
        return found

    def operations(self, trace):
        return {name.split()[0] for name in trace["collective (host)"]}

    def test_every_rank_and_every_phase(self):
        with self.workspace() as work:
            for strategy, travels in (("ddp", {"all_reduce"}), ("zero2", {"reduce_scatter", "all_gather"}),
                                      ("zero3", {"reduce_scatter", "all_gather"})):
                with self.subTest(strategy):
                    work.run(f"output_dir={strategy}", f"distributed_strategy={strategy}", "profile_steps=3-4", ranks=2)
                    for rank in range(2):
                        trace = self.trace(work, f"{strategy}/trace-3-4.rank{rank}.json")
                        self.assertEqual(trace["phase"], PHASES)
                        self.assertEqual(trace["update"], {"update 3", "update 4"})
                        self.assertLessEqual(travels, self.operations(trace))
                        self.assertEqual(trace["optimizer"], {"gradient norm", "step"})
                        units = {name.rsplit(" ", 1)[0] for name in trace["unit"]}
                        self.assertGreater(len(units), 2, "blocks, and what is around them")
                        for unit in units:
                            self.assertLessEqual({f"{unit} forward", f"{unit} backward"}, trace["unit"])

    def test_gathers_of_zero3_begin_before_the_unit_before_them_ends(self):
        with self.workspace(llama(num_hidden_layers=5)) as work:
            work.run("output_dir=out", "distributed_strategy=zero3", "profile_steps=3", ranks=2)
            for rank in range(2):
                events = json.loads((work / f"out/trace-3.rank{rank}.json").read_text())["traceEvents"]
                ends = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
                gathers = [(event["ts"], ends[event["id"]]) for event in events
                           if event["ph"] == "b" and event["name"].startswith("all_gather")]
                units = sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events
                               if event.get("cat") == "unit")
                waited = 0
                for (_, end, before), (begin, _, unit) in pairwise(units):
                    # What a unit waits for ends between the one before it and its own begin.
                    for gather_begin, gather_end in gathers:
                        if unit.startswith("block ") and end <= gather_end <= begin:
                            self.assertLess(gather_begin, end, f"{unit} after {before}")
                            waited += 1
                self.assertEqual(waited, 5 + 4, "the last block stays whole for backward")

    def test_the_table_is_said_once_and_written(self):
        with self.workspace() as work:
            ended = work.run("output_dir=out", "profile_steps=2", ranks=2)
            table = (work / "out/profile-2.txt").read_text()
            self.assertEqual(ended.stderr.count("profile of update 2, on the first of 2 ranks"), 1)
            for word in (*PHASES, "attention projections", "MLP", "head", "TFLOP/s on each of 2 ranks"):
                self.assertIn(word, table)
                self.assertIn(word, ended.stderr)

    def test_a_run_is_the_same_with_it(self):
        with self.workspace() as work:
            work.run("output_dir=plain", ranks=2)
            work.run("output_dir=traced", "profile_steps=1-6", ranks=2)
            plain, traced = ([record.get("loss") for record in work.records(name)] for name in ("plain", "traced"))
            self.assertEqual(plain, traced)
            self.assertEqual((work / "plain/model.safetensors").read_bytes(), (work / "traced/model.safetensors").read_bytes())

    def test_a_range_that_lies_behind_a_continuation(self):
        with self.workspace() as work:
            work.run("output_dir=out", "max_steps=4")
            ended = work.run("output_dir=out", "profile_steps=2-3")
            self.assertIn("profile_steps: 2-3: this start continues behind update 4; nothing will be recorded", ended.stderr)

    def test_fresh_removes_the_traces_of_the_run_before(self):
        with self.workspace() as work:
            work.run("output_dir=out", "profile_steps=2", ranks=2)
            written = ["profile-2.txt", "trace-2.rank0.json", "trace-2.rank1.json"]
            for name in written:
                self.assertTrue((work / "out" / name).exists(), name)
            work.run("output_dir=out", "--fresh")
            for name in written:
                self.assertFalse((work / "out" / name).exists(), name)

    def test_a_range_that_the_run_leaves_early(self):
        with self.workspace() as work:
            work.run("output_dir=out", "profile_steps=5-99")
            self.assertEqual(self.trace(work, "out/trace-5-6.rank0.json")["update"], {"update 5", "update 6"})
            ended = work.run("output_dir=never", "profile_steps=7-99")
            self.assertIn("profile_steps: 7-99: the run ends after update 6; nothing will be recorded", ended.stderr)
            ended = work.run("output_dir=wrong", "profile_steps=x", code=2)
            self.assertIn("'profile_steps' must be an update or a range of them, as 10-12, not 'x'", ended.stderr)


if __name__ == "__main__":
    unittest.main()
