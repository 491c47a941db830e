# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Any command can start ranks: `skein eval` with what `skein train` has. The configuration is read once per launcher."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from foreign_test import torch_style, two_machines
from harness import ENVIRONMENT, SKEIN, Workspace, children, finish, free_port, run_skein


class Evaluation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=3, global_batch_size=4, num_blocks=30)
        cls.addClassCleanup(shutil.rmtree, cls.work.folder)
        cls.work.run("output_dir=out")
        cls.words = ["eval", "out", "--dataset", "text.txt", "--block-size", "32", "--device", "cpu", "--json",
                     "--dtype", "float64"]
        cls.alone = json.loads(run_skein(cls.words, cls.work.folder).stdout)

    def check(self, stdout):
        """The numbers of one rank, on one line: only the first rank prints."""
        found = json.loads(stdout)
        self.assertEqual([found["num_tokens"], found["num_samples"]],
                         [self.alone["num_tokens"], self.alone["num_samples"]])
        self.assertAlmostEqual(found["eval_loss"], self.alone["eval_loss"], delta=1e-12)

    def start_all(self, variants, words=()):
        """One process for each set of variables and flags; the outputs in their order."""
        processes = [subprocess.Popen([SKEIN, *self.words, *words, *flags], cwd=self.work.folder, text=True,
                                      env=ENVIRONMENT | {name: str(value) for name, value in variables.items()},
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      start_new_session=True)
                     for variables, flags in variants]
        return [finish(process, 0).stdout for process in processes]

    def test_ranks_of_one_launcher(self):
        self.assertEqual(self.alone["num_samples"], 30)
        for ranks in (2, 3):
            self.check(run_skein([*self.words, "--nproc-per-node", ranks], self.work.folder).stdout)

    def test_two_nodes(self):
        (self.work / "secret").write_text("0123456789" * 4)
        (self.work / "secret").chmod(0o600)
        port = free_port()
        first, second = self.start_all([({}, ["--node-rank", str(node)]) for node in range(2)],
                                       ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
                                        "--nproc-per-node", "2", "--secret-file", "secret"])
        self.check(first)
        self.assertEqual(second, "")

    def test_ranks_of_another_launcher(self):
        for variables in (torch_style, two_machines):
            port = free_port()
            first, second = self.start_all([(variables(rank, 2, port), []) for rank in range(2)])
            self.check(first)
            self.assertEqual(second, "")

    def test_logs_and_filters(self):
        run_skein([*self.words, "--nproc-per-node", "2", "--log-dir", "logs", "--redirects", "3"], self.work.folder)
        self.check((self.work / "logs/attempt_0/0/stdout.log").read_text())
        self.assertEqual((self.work / "logs/attempt_0/1/stdout.log").read_text(), "")

    def test_a_lost_rank_is_reported_and_healed(self):
        """The second rank of the first start is killed; a restart does it again."""
        self.work.write_text(4000, "long.txt", seed=2)
        words = ["eval", "out", "--dataset", "long.txt", "--block-size", "32", "--batch-size", "1", "--device", "cpu",
                 "--json"]
        once = json.loads(run_skein(words, self.work.folder).stdout)
        process = subprocess.Popen([SKEIN, *words, "--nproc-per-node", "2", "--max-restarts", "1"],
                                   cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        os.kill(self.wait_for_rank(process, 1), signal.SIGKILL)
        ended = finish(process, 0)
        self.assertIn("rank 1 of 2", ended.stderr)
        self.assertIn("restarting (1 of 1)", ended.stderr)
        self.assertAlmostEqual(json.loads(ended.stdout)["eval_loss"], once["eval_loss"], delta=1e-6)

    def wait_for_rank(self, launcher, rank):
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            for pid in children(launcher.pid):
                if b"RANK=%d" % rank in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    return pid
            time.sleep(0.01)
        raise AssertionError("no such rank")


class IgnoredChildren(unittest.TestCase):
    """Who starts skein wants to hear nothing of its own children, and says so to the kernel: skein inherits that."""

    def test_how_ranks_end_is_known_all_the_same(self):
        with Workspace(max_steps=100000, global_batch_size=4, output_dir="out") as work:
            process = subprocess.Popen(["bash", "-c", 'trap "" CHLD; exec "$@"', "-", SKEIN, *work.command(ranks=2)],
                                       cwd=work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            self.addCleanup(process.kill)
            work.wait_for_step(process, "out", 3)
            os.kill(children(process.pid)[1], signal.SIGKILL)
            self.assertIn("was killed by SIGKILL", finish(process, 1).stderr)
            self.assertFalse((work / "out/.skein-lease").exists())


class Configuration(unittest.TestCase):
    def test_ranks_read_no_recipe(self):
        """The recipe is gone before a rank has loaded its libraries."""
        with Workspace(max_steps=2, global_batch_size=4) as work:
            process = work.start("output_dir=out", "learning_rate=3e-4", ranks=2)
            said = ""
            while "launch: " not in said:
                line = process.stderr.readline()
                self.assertTrue(line, said)
                said += line
            (work / "c.yaml").unlink()
            finish(process, 0)
            self.assertEqual(len(work.records("out")), 2)
            saved = (work / "out/config.yaml").read_text()
            self.assertIn("learning_rate: 0.0003", saved)
            self.assertIn("max_steps: 2", saved)

    def test_a_working_folder_that_was_removed_is_named(self):
        with Workspace(max_steps=2, global_batch_size=4) as work:
            (work / "gone").mkdir()
            paths = [f"{key}={work / name}" for key, name in
                     [("output_dir", "out"), ("model_name_or_path", "model"), ("train_file", "text.txt")]]
            ended = subprocess.run(["bash", "-c", 'cd gone && rmdir ../gone && exec "$@"', "x", SKEIN, "train", work / "c.yaml",
                                    *paths], cwd=work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, text=True,
                                   capture_output=True)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("the folder that this command was started in cannot be used any more", ended.stderr)


if __name__ == "__main__":
    unittest.main()
