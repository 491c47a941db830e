# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A run whose folder another one has taken over commits nothing more and ends with 3, whoever started it."""
import os
import shutil
import signal
import time
import unittest

from foreign_test import ForeignRun, slurm, torch_style
from harness import TIMEOUT, children, finish, free_port

TAKEN_OVER = '{"host":"host-b","boot":"other","pid":77,"since":"noon","token":"t"}\n'


def checkpoints(output):
    return sorted(int(path.name.split("-")[1]) for path in output.glob("checkpoint-*") if ".tmp-" not in path.name)


def wait_for_checkpoint(process, output):
    give_up = time.monotonic() + TIMEOUT
    while not checkpoints(output):
        if process.poll() is not None:
            raise AssertionError(finish(process).stderr)
        assert time.monotonic() < give_up, "no checkpoint"
        time.sleep(0.01)


class Fence(ForeignRun):
    # Nothing is logged: what a rank meets first is its next commit.
    KEYS = {"max_steps": 1_000_000, "save_steps": 1, "logging_steps": 1_000_000, "report_to": "none"}

    def check_taken_over(self, processes, output):
        wait_for_checkpoint(processes[0], output)
        (output / ".skein-lease").write_text(TAKEN_OVER)  # in place, as another machine's start does
        time.sleep(0.3)  # for a commit under way
        left = checkpoints(output)
        ended = [finish(process, 3) for process in processes]
        self.assertIn("was taken over by the run on host host-b", "".join(one.stderr for one in ended))
        self.assertEqual(checkpoints(output), left)
        self.assertEqual((output / ".skein-lease").read_text(), TAKEN_OVER)

    def test_own_launcher(self):
        run = self.work.start("output_dir=own", ranks=2)
        self.addCleanup(self.end_all, [run])
        self.check_taken_over([run], self.work / "own")

    def test_a_restart_is_none(self):
        run = self.work.start("output_dir=again", "--max-restarts=5", ranks=1)
        self.addCleanup(self.end_all, [run])
        self.check_taken_over([run], self.work / "again")

    def test_other_launchers(self):
        for variables in (torch_style, slurm):
            with self.subTest(variables.__name__):
                output = f"other-{variables.__name__}"
                self.check_taken_over(self.start_ranks(variables, f"output_dir={output}"), self.work / output)

    def test_mpirun(self):
        self.check_taken_over([self.start_mpirun("output_dir=mpi")], self.work / "mpi")

    def test_what_the_new_owner_has_for_its_nodes_stays(self):
        """A node 0 that waits for the others when another machine's node 0 takes its folder."""
        output = self.work / "nodes"
        head = self.work.start("output_dir=nodes", "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1",
                               f"--master-port={free_port()}", ranks=1)
        self.addCleanup(self.end_all, [head])
        files = [output / name for name in (".skein-secret", ".skein-node-token")]
        while not all(file.exists() for file in files):
            self.assertIsNone(head.poll())
            time.sleep(0.01)
        (output / ".skein-lease").write_text(TAKEN_OVER)
        for file in files:
            file.write_text("of the new owner")
        self.assertIn("was taken over by the run on host host-b", finish(head, 3).stderr)
        self.assertEqual([file.read_text() for file in files], ["of the new owner"] * 2)

    def test_a_folder_made_anew(self):
        """Frozen, its folder removed and used by a new run that has ended: what wakes up writes nothing there."""
        output = self.work / "anew"
        old = self.work.start("output_dir=anew", ranks=1)
        self.addCleanup(self.end_all, [old])
        wait_for_checkpoint(old, output)
        frozen = [old.pid, *children(old.pid)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        shutil.rmtree(output)
        self.work.run("output_dir=anew", "max_steps=2", "logging_steps=1", ranks=1)
        before = {path.relative_to(output): path.stat().st_mtime_ns for path in output.rglob("*")}
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        finish(old, 3)
        self.assertEqual({path.relative_to(output): path.stat().st_mtime_ns for path in output.rglob("*")}, before)


del ForeignRun  # its tests run elsewhere

if __name__ == "__main__":
    unittest.main()
