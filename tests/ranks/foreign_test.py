# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Ranks that another launcher has started: mpirun itself, and the variables of others set by hand.

torchrun, accelerate and deepspeed themselves are in tests/parity/launchers_test.py."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from harness import (ENVIRONMENT, SKEIN, TIMEOUT, Workspace, finish, free_port, is_alive,
                     wait_until_gone)

RANKS = 2


def deepspeed(rank, size, port):
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_SIZE": size, "CROSS_RANK": 0,
            "CROSS_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def torch_style(rank, size, port):
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def two_machines(rank, size, port):
    """One rank on each, as far as the ranks can tell."""
    return {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def slurm(rank, size, port):
    return {"SLURM_JOB_ID": port, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank,
            "SLURM_NTASKS": size, "SLURM_STEP_NUM_TASKS": size, "SLURM_NNODES": 1,
            "SLURM_STEP_NUM_NODES": 1, "SLURM_NODEID": 0, "SLURM_NTASKS_PER_NODE": size,
            "SLURM_STEP_TASKS_PER_NODE": size, "SLURM_TASKS_PER_NODE": size,
            "SLURM_JOB_NODELIST": socket.gethostname(), "SLURM_STEP_NODELIST": socket.gethostname(),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def mpich(rank, size, port):
    return {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


class ForeignRun(unittest.TestCase):
    KEYS = {}

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(**{"max_steps": 4, "global_batch_size": 8, "save_steps": 2} | cls.KEYS)
        cls.addClassCleanup(shutil.rmtree, cls.work.folder)

    def model(self, output):
        return (self.work / output / "model.safetensors").read_bytes()

    def start_ranks(self, variables, *words, port=None, extra=None, size=RANKS):
        """One process per rank, in rank order."""
        port = port or free_port()
        ranks = []
        for rank in range(size):
            environment = ENVIRONMENT | {name: str(value)
                                         for name, value in variables(rank, size, port).items()}
            environment |= (extra(rank) if extra else {})
            ranks.append(subprocess.Popen(
                [SKEIN, "train", "c.yaml", *words], cwd=self.work.folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True))
        self.addCleanup(self.end_all, ranks)
        return ranks

    def start_mpirun(self, *words):
        mpirun = shutil.which("mpirun")
        self.assertIsNotNone(mpirun, "mpirun is missing; type: sudo apt-get install openmpi-bin")
        command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS), SKEIN, "train",
                   "c.yaml", *words]
        # Open MPI talks to itself only, and finds no other daemon of the machine.
        environment = ENVIRONMENT | {"OMPI_MCA_btl_tcp_if_include": "lo",
                                     "OMPI_MCA_oob_tcp_if_include": "lo"}
        process = subprocess.Popen(command, cwd=self.work.folder, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.end_all, [process])
        return process

    def end_all(self, ranks):
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def run_ranks(self, variables, *words, code=0, **settings):
        ranks = self.start_ranks(variables, *words, **settings)
        return [finish(process, code) for process in ranks]

    def wait_for_log(self, output, step):
        give_up = time.monotonic() + TIMEOUT
        log = self.work / output / "trainer_log.jsonl"
        while not log.exists() or log.read_bytes().count(b"\n") < step:
            self.assertLess(time.monotonic(), give_up, f"no step {step}")
            time.sleep(0.002)


class SameRun(ForeignRun):
    """Byte-equal to skein's own launcher."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work.run("output_dir=own", ranks=RANKS)

    def test_variables_of_others(self):
        for name, variables in {"deepspeed": deepspeed, "torch": torch_style, "slurm": slurm,
                                "mpich": mpich, "machines": two_machines}.items():
            with self.subTest(name):
                ended = self.run_ranks(variables, f"output_dir={name}")
                self.assertIn(f"rank 0 of {RANKS}", ended[0].stderr)
                self.assertNotIn("launch:", ended[1].stderr)
                self.assertEqual(self.model("own"), self.model(name))

    def test_extra_arguments_of_deepspeed(self):
        port = free_port()
        ranks = [subprocess.Popen(
            [SKEIN, f"--local_rank={rank}", "train", "c.yaml", "output_dir=out"],
            cwd=self.work.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            env=ENVIRONMENT | {k: str(v) for k, v in deepspeed(rank, RANKS, port).items()})
            for rank in range(RANKS)]
        self.addCleanup(self.end_all, ranks)
        for process in ranks:
            finish(process, 0)
        self.assertEqual(self.model("own"), self.model("out"))

    def test_mpirun(self):
        ended = finish(self.start_mpirun("output_dir=mpi"), 0)
        self.assertIn("Open MPI", ended.stderr)
        self.assertEqual(self.model("own"), self.model("mpi"))

    def test_stop_and_continue(self):
        self.work.run("output_dir=whole", "max_steps=60", ranks=RANKS)
        ranks = self.start_ranks(slurm, "output_dir=parts", "max_steps=60")
        self.wait_for_log("parts", 3)
        for process in ranks:
            process.send_signal(signal.SIGTERM)  # as Slurm does at the end of the time
        for process in ranks:
            finish(process, 75)
        self.run_ranks(slurm, "output_dir=parts", "max_steps=60")
        self.assertEqual(self.model("whole"), self.model("parts"))


class Trouble(ForeignRun):
    """What happens to one rank is told by the others, in bounded time."""

    KEYS = {"max_steps": 100_000, "save_steps": 100_000}

    def hurt(self, rank, sent):
        """Sends a signal to a rank in the middle of the run; returns how the others have ended."""
        output = f"{sent.name}-{rank}"
        ranks = self.start_ranks(slurm, f"output_dir={output}")
        self.wait_for_log(output, 3)
        begun = time.monotonic()
        ranks[rank].send_signal(sent)
        ended = [finish(process, 3) for i, process in enumerate(ranks) if i != rank]
        self.assertLess(time.monotonic() - begun, 30)
        ranks[rank].kill()
        self.assertEqual(wait_until_gone([process.pid for process in ranks]), [])
        return "".join(each.stderr for each in ended)

    def test_killed_rank(self):
        """The others tell where it was, not where it was heard last, and leave no lease."""
        said = self.hurt(1, signal.SIGKILL)
        died, waited = (re.search(pattern, said) for pattern in (r"rank 1 ended .*?step (\d+);",
                                                                 r"rank 0 waited for .*\(step (\d+),"))
        self.assertTrue(died and waited, said)
        self.assertLessEqual(int(waited[1]) - int(died[1]), 1, said)
        self.assertFalse((self.work / "SIGKILL-1/.skein-lease").exists())

    def test_killed_first_rank(self):
        said = self.hurt(0, signal.SIGKILL)
        self.assertNotIn("frame #", said)
        self.assertTrue("lost the ranks' store" in said or "rank 1 of 2" in said, said)

    def test_stopped_rank(self):
        said = self.hurt(1, signal.SIGSTOP)
        self.assertIn("rank 1", said)
        self.assertIn("stopped", said)

    def test_stopped_first_rank(self):
        self.assertIn("rank 0", self.hurt(0, signal.SIGSTOP))

    def test_folder_in_use(self):
        first = self.start_ranks(slurm, "output_dir=taken")
        self.wait_for_log("taken", 1)
        # Its rank 1 may look for the store when rank 0 has been refused already: then it waits so long.
        second = self.start_ranks(slurm, "output_dir=taken", "join_timeout=20")
        refused = finish(second[0], 2)
        self.assertIn("taken is in use", refused.stderr)
        self.assertNotEqual(finish(second[1]).returncode, 0)
        self.assertTrue(all(is_alive(process.pid) for process in first))

    def test_port_of_another_program(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            ranks = self.start_ranks(torch_style, "output_dir=out", port=port)
            refused = finish(ranks[0], 2)
            self.assertIn(str(port), refused.stderr)
            self.assertIn("MASTER_PORT", refused.stderr)

    def test_error_file(self):
        files = [self.work / f"error-{rank}.json" for rank in range(RANKS)]
        ended = self.run_ranks(torch_style, "output_dir=out", "global_batch_size=9", code=2,
                               extra=lambda rank: {"TORCHELASTIC_ERROR_FILE": str(files[rank])})
        self.assertIn("global batch 9", ended[0].stderr)
        for file in files:
            message = json.loads(file.read_text())["message"]
            self.assertIn("global batch 9", message["message"])
            self.assertIn("timestamp", message["extraInfo"])

    def test_missing_ranks(self):
        for present, missing in ((0, "rank 1 of 2 did not join"), (1, "the ranks' store")):
            environment = ENVIRONMENT | {k: str(v) for k, v in
                                         torch_style(present, RANKS, free_port()).items()}
            process = subprocess.Popen(
                [SKEIN, "train", "c.yaml", f"output_dir=alone-{present}", "join_timeout=2"],
                cwd=self.work.folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
            self.assertIn(missing, finish(process, 3).stderr)
            self.assertFalse((self.work / f"alone-{present}/.skein-lease").exists())

    def test_machines_that_differ(self):
        """Each rank is given the whole recipe, with a rate of its own."""
        for rank in range(RANKS):
            self.work.write_recipe(self.work.keys | {"learning_rate": 1e-3 * (rank + 1)}, f"{rank}.yaml")
        port = free_port()
        ranks = [subprocess.Popen(
            [SKEIN, "train", f"{rank}.yaml", "output_dir=out"], cwd=self.work.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
            env=ENVIRONMENT | {k: str(v) for k, v in two_machines(rank, RANKS, port).items()})
            for rank in range(RANKS)]
        self.addCleanup(self.end_all, ranks)
        said = "".join(finish(process).stderr for process in ranks)
        self.assertEqual([process.returncode for process in ranks].count(0), 0)
        self.assertIn(2, [process.returncode for process in ranks])
        self.assertIn("learning_rate", said)

    def test_contradiction(self):
        ended = self.run_ranks(lambda rank, size, port: torch_style(rank, size, port)
                               | {"RANK": size + rank}, "output_dir=out", code=2)
        self.assertIn("RANK", ended[0].stderr)


if __name__ == "__main__":
    unittest.main()
