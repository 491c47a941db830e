# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Two nodes on this machine: do they run the same, and where do they save?"""
import resource
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, Workspace, children, finish, free_port, gpt2, kill

FILES = ("model.safetensors", "optimizer.safetensors")
NODES = ("out0", "out1")


class Nodes(unittest.TestCase):
    """`start` gets one list of words for each node."""

    def make(self, **keys):
        self.work = Workspace(gpt2(), num_blocks=20, global_batch_size=8, **keys)
        self.addCleanup(shutil.rmtree, self.work.folder)

    def start(self, *words, folders=(".", "."), programs=(SKEIN, SKEIN)):
        port = free_port()
        return [subprocess.Popen(
            [programs[node], *self.work.command(*words[node], "--nnodes", "2", "--node-rank", str(node), "--master-addr",
                                                "127.0.0.1", "--master-port", str(port), ranks=2)],
            cwd=self.work / folders[node], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True) for node in range(2)]

    def refuse(self, *words, says, **how):
        processes = self.start(*words, **how)
        errors = [finish(process).stderr for process in processes]
        self.assertEqual([process.returncode for process in processes], [2, 2], errors)
        self.assertEqual(errors[0].count("error: "), 1, errors[0])
        for part in says:
            self.assertIn(part, errors[0])


class EachNode(Nodes):
    """save_on_each_node: each has an output_dir of its own."""
    STEPS = 12

    def setUp(self):
        self.make(max_steps=self.STEPS, save_steps=2, save_on_each_node=True)

    def start_nodes(self, *words):
        return self.start(*([f"output_dir={output}", *words] for output in NODES))

    def run_nodes(self, *words):
        return [finish(process, 0) for process in self.start_nodes(*words)]

    def whole(self):
        self.work.run("output_dir=whole", "save_on_each_node=false", ranks=4)

    def assert_same(self, output, step):
        for name in FILES:
            self.assertEqual((self.work / output / f"checkpoint-{step}" / name).read_bytes(),
                             (self.work / "whole" / f"checkpoint-{step}" / name).read_bytes(), (output, step, name))

    def test_every_node_has_it_all(self):
        self.whole()
        self.run_nodes()
        for output in NODES:
            for step in range(2, self.STEPS + 1, 2):
                self.assert_same(output, step)
            self.assertEqual((self.work / output / FILES[0]).read_bytes(), (self.work / "whole" / FILES[0]).read_bytes())
            self.assertEqual([p for p in (self.work / output).iterdir() if ".tmp-" in p.name], [])

    def test_they_go_on_from_what_both_have(self):
        self.whole()
        self.run_nodes()
        for output, steps in (("out0", (6, 8, 10, 12)), ("out1", (4, 10, 12))):
            for step in steps:
                shutil.rmtree(self.work / output / f"checkpoint-{step}")
            for name in (FILES[0], "trainer_state.json"):
                (self.work / output / name).unlink()
        # Both have 2; node 0 has 4, node 1 has 6 and 8.
        ended = self.run_nodes()
        self.assertIn("continuing out0/checkpoint-2 at step 2", ended[0].stderr)
        for output in NODES:
            self.assert_same(output, self.STEPS)
        self.assertEqual([r["step"] for r in self.work.records("out0")], list(range(1, self.STEPS + 1)))

    def test_they_go_on_after_the_disk_of_one_was_full(self):
        """The other keeps what both have, whatever save_total_limit is."""
        processes = self.start_nodes("max_steps=100000", "save_total_limit=1")
        self.work.wait_for_step(processes[0], "out0", 10)
        for rank in children(processes[1].pid):
            resource.prlimit(rank, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        self.work.wait_for_step(processes[0], "out0", 40)
        processes[0].send_signal(signal.SIGTERM)
        ended = [finish(process, 4) for process in processes]
        self.assertNotIn("the same command continues", ended[0].stderr)
        self.assertIn("was not saved", ended[1].stderr)
        steps = [sorted(int(p.name.split("-")[1]) for p in (self.work / output).glob("checkpoint-*")) for output in NODES]
        common = steps[1][-1]
        self.assertIn(common, steps[0])
        self.assertLessEqual(len(steps[0]), 3, "that one, the one before the stop, and the stop's")
        ended = self.run_nodes(f"max_steps={common + 4}", "save_total_limit=1")
        self.assertIn(f"continuing out0/checkpoint-{common} at step", ended[0].stderr)

    def test_a_checkpoint_of_one_node_is_copied_to_another(self):
        self.run_nodes("max_steps=4")
        for step in (2, 4):
            shutil.rmtree(self.work / f"out1/checkpoint-{step}")
        for process in self.start_nodes("max_steps=6"):
            finish(process, 4)
        shutil.copytree(self.work / "out0/checkpoint-4", self.work / "out1/checkpoint-4")
        self.assertIn("continuing out0/checkpoint-4 at step 4", self.run_nodes("max_steps=6")[0].stderr)

    def test_one_shared_folder_is_refused(self):
        self.refuse(["output_dir=out"], ["output_dir=out"], says=["one output_dir", "drop save_on_each_node"])

    def test_a_folder_in_use_is_refused(self):
        first = self.work.start("output_dir=out1", "max_steps=100000", ranks=1)
        self.work.wait_for_step(first, "out1", 1)
        self.refuse(["output_dir=out0"], ["output_dir=out1"],
                    says=["node 1 (", "cannot use output_dir: out1 is in use by", f"pid {first.pid}"])
        kill([first.pid])
        finish(first)

    def test_killed_and_continued(self):
        processes = self.start_nodes("max_steps=4000", "save_steps=5")
        self.work.wait_for_step(processes[0], "out0", 12)
        kill([process.pid for process in processes])
        for process in processes:
            finish(process)
        self.run_nodes("max_steps=30", "save_steps=5")
        for name in FILES:
            self.assertEqual((self.work / "out0/checkpoint-30" / name).read_bytes(),
                             (self.work / "out1/checkpoint-30" / name).read_bytes())


class Differences(Nodes):
    """Found before any process group exists, named, and refused on both."""

    def setUp(self):
        self.make(max_steps=2, output_dir="out")

    def test_none(self):
        for process in self.start([], ["preprocessing_num_workers=3"]):
            finish(process, 0)
        self.assertTrue((self.work / "out/model.safetensors").exists())
        self.assertEqual([p.name for p in (self.work / "out").iterdir() if p.name.startswith(".skein")],
                         [".skein-run"])

    def test_configuration(self):
        self.refuse([], ["learning_rate=0.5"],
                    says=["node 1 (", "runs another configuration than node 0 (", "learning_rate: 0.5 there, 0.001 here;"])
        self.refuse([], ["learning_rate=0.5", "seed=7"], says=["learning_rate: 0.5 there", "(first of 2 lines"])

    def test_data(self):
        self.work.write_text(20, name="other.txt", seed=2)
        self.refuse([], ["train_file=other.txt"], says=["node 1 (", "has other training data than node 0 ("])

    def test_program(self):
        copy = self.work / "bin"
        shutil.copytree(Path(SKEIN).parent, copy)
        with (copy / "skein-worker").open("ab") as program:
            program.write(b"x")
        self.refuse([], [], programs=(SKEIN, copy / "skein"), says=["runs another build of skein than node 0 ("])

    def test_folder_that_is_not_shared(self):
        (self.work / "far").mkdir()
        for name in ("model", "text.txt", "c.yaml"):
            (self.work / "far" / name).symlink_to(self.work / name)
        (self.work / "secret").write_bytes(bytes(range(32)))
        (self.work / "secret").chmod(0o600)
        secret = ["--secret-file", str(self.work / "secret")]
        self.refuse(secret, secret, folders=(".", "far"), says=["output_dir is not one shared folder: node 1 ("])


if __name__ == "__main__":
    unittest.main()
