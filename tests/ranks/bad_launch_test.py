# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Launches that cannot work: the right exit code, one message, nothing left running, and a run that is
already in the folder untouched; and odd ones that must. Nodes that differ are in nodes_test.py, small
disks in disk_test.py."""
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, Workspace, children, finish, free_port, run_skein

STACK = ("terminate called", "what():", "frame #", "Traceback", "c10::", ".cpp:")
SOON = 15  # seconds on a busy machine for what takes three
# What this machine's own launcher may have set.
UNSET = ("NODE_RANK", "NNODES", "HOSTFILE", "GROUP_RANK", "SLURM_NTASKS", "SLURM_PROCID")


def running_in(folder):
    """Processes that work there."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.resolve().is_relative_to(folder.resolve()):
                found.append(link.parent.name)
        except OSError:
            continue  # ended meanwhile, or not ours to see
    return found


class BadLaunch(unittest.TestCase):
    """Every case is started into the folder `out` of a finished run, which must stay as it is."""

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=2, global_batch_size=8, output_dir="out", save_steps=1)
        (cls.work / "bin").mkdir()
        (cls.work / "bin/ssh").write_text('#!/bin/sh\ntouch ssh-was-called\n')
        (cls.work / "bin/ssh").chmod(0o755)
        cls.work.run(ranks=2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def tearDown(self):
        self.assertEqual(running_in(self.work.folder), [])
        self.assertFalse((self.work / "ssh-was-called").exists())

    def snapshot(self):
        """Digests of the run's files; messages go to logs/ in any case."""
        out = self.work / "out"
        return {path.relative_to(out): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in out.rglob("*") if path.is_file() and path.parent != out / "logs"}

    def start(self, *words, folder=".", **variables):
        environment = {k: v for k, v in ENVIRONMENT.items() if k not in UNSET}
        environment["PATH"] = f"{self.work.folder}/bin:{os.environ['PATH']}"
        return subprocess.Popen([SKEIN, *self.work.command(*words)], cwd=self.work / folder,
                                env=environment | variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def check(self, process, code, *says):
        ended = finish(process, code)
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        message = ended.stderr[ended.stderr.index("error: "):]
        for part in says:
            self.assertIn(part, message)
        for part in STACK:
            self.assertNotIn(part, ended.stderr)

    def refuse(self, *words, says, code=2, **variables):
        before = self.snapshot()
        self.check(self.start(*words, **variables), code, *says)
        self.assertEqual(self.snapshot(), before)


def node(number, port, *words):
    return ["--nnodes", "2", "--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port",
            str(port), "--rdzv-conf", "join_timeout=2", *words]


class FolderInUse(unittest.TestCase):
    def test_the_first_run_is_unharmed(self):
        """Whatever the second start would do to the folder, it does nothing."""
        with Workspace(max_steps=250, global_batch_size=8, save_steps=50) as work:
            work.run("output_dir=alone", ranks=2)
            first = work.start("output_dir=out", ranks=2)
            work.wait_for_step(first, "out", 5)
            for words in (["--fresh"], ["learning_rate=0.5"], node(0, free_port()), ["--max-restarts", "3"]):
                ended = work.run("output_dir=out", *words, code=2)
                self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                self.assertIn(f"out is in use by the run on host {socket.gethostname()}, pid {first.pid}",
                              ended.stderr)
            self.assertIsNone(first.poll(), "ended before the last start: give it more steps")
            finish(first, 0)
            for name in ("model.safetensors", "checkpoint-250/optimizer.safetensors"):
                self.assertEqual((work / "out" / name).read_bytes(), (work / "alone" / name).read_bytes())
            self.assertEqual([r["step"] for r in work.records("out")], list(range(1, 251)))
            self.assertEqual([p.name for p in (work / "out").glob(".skein*")], [".skein-run"])


class AllAtOnce(unittest.TestCase):
    """Ranks that all fail before anything is known of a cause."""

    def test_none_can_join(self):
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        with Workspace(max_steps=2, global_batch_size=8) as work:
            for ranks in (1, 2):  # the loopback interface of a new namespace is down
                command = work.command("output_dir=out", "join_timeout=2", ranks=ranks)
                ended = run_skein(command, work.folder, 3, prefix=unshare)
                self.assertIn("cannot join the control store", ended.stderr)

    def test_a_switch_that_makes_no_sense(self):
        with Workspace(max_steps=2, global_batch_size=8) as work:
            ended = run_skein(work.command("output_dir=out", ranks=2), work.folder, 2,
                              prefix=["env", "SKEIN_SHARED_MEMORY=off"])
            self.assertIn("SKEIN_SHARED_MEMORY='off' is not a number from 0 to 1", ended.stderr)

    def test_all_are_told_to_end(self):
        with Workspace(max_steps=200, global_batch_size=8) as work:
            process = work.start("output_dir=out", ranks=2)
            while process.poll() is None and len(children(process.pid)) < 2:
                time.sleep(0.001)
            for pid in children(process.pid):
                os.kill(pid, signal.SIGTERM)
            self.assertIn("SIGTERM", finish(process, 1).stderr)


class Streams(unittest.TestCase):
    """The run needs nobody who reads what it says."""

    def run_in_shell(self, words):
        with Workspace(max_steps=40, global_batch_size=8, save_steps=20) as work:
            command = " ".join(map(str, [SKEIN, *work.command("output_dir=out", ranks=2)]))
            ended = subprocess.run(["bash", "-c", words.replace("SKEIN", command)], cwd=work.folder,
                                   env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=120)
            self.assertEqual(ended.returncode, 0)
            for name in ("checkpoint-20", "checkpoint-40", "model.safetensors"):
                self.assertTrue((work / "out" / name).exists(), name)
            self.assertNotIn("warning", (work / "out/logs/training.log").read_text())

    def test_closed(self):
        """The next file that is opened must not become the one that messages go to."""
        self.run_in_shell("SKEIN 0<&- 1>&- 2>&-")

    def test_the_reader_goes_away(self):
        self.run_in_shell("SKEIN 2>&1 | head -n 3 > /dev/null; exit ${PIPESTATUS[0]}")

    def test_full_disk(self):
        self.run_in_shell("SKEIN > /dev/full 2>&1")


class Hostfiles(BadLaunch):
    def refuse_hosts(self, *lines, words=(), says):
        (self.work / "hosts").write_text("".join(line + "\n" for line in lines))
        self.refuse("--hostfile", "hosts", *words, says=says)

    def test_missing(self):
        self.refuse("--hostfile", "nowhere", says=["--hostfile nowhere", "no such file"])
        self.refuse("--hostfile", "model", says=["--hostfile model: it is no regular file"])

    def test_few_open_files(self):
        """Whatever fails then, it has been said how many would do."""
        ended = finish(subprocess.Popen(["prlimit", "--nofile=24:24", SKEIN, *self.work.command("output_dir=few", ranks=2)],
                                        cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self.assertIn("the limit on open files is 24, and 2 ranks need about 84: ulimit -n 84", ended.stderr)
        # What a process may raise by itself it does.
        ended = run_skein(self.work.command("output_dir=raised", "max_steps=1", ranks=2), self.work.folder,
                          prefix=["prlimit", "--nofile=24:4096"])
        self.assertNotIn("open files", ended.stderr)
        self.refuse_hosts("# nobody", says=["hosts names no host", "slots=N"])

    def test_options_and_shell_words(self):
        for word in ("-oProxyCommand=touch${IFS}hacked", "$(touch${IFS}hacked)", "a;touch", "`id`", "u@-x"):
            with self.subTest(word):
                self.refuse_hosts("alpha slots=1", f"{word} slots=1", says=["hosts:2: ", "is no host name"])
        self.assertFalse((self.work / "hacked").exists())

    def test_lines(self):
        self.refuse_hosts("alpha slots=1", "", "alpha slots=2", says=["hosts:3: ", "'alpha' twice"])
        for line in ("beta slots=0", "beta slots=many", "beta slots", "beta 4"):
            with self.subTest(line):
                self.refuse_hosts("alpha slots=1", line, says=["hosts:2: ", line])

    def test_choices(self):
        hosts = ("alpha slots=2", "beta slots=2")
        cases = ((["--include", "gamma"], ["--include", "unknown host 'gamma'", "alpha, beta"]),
                 (["--exclude", "gamma"], ["--exclude", "unknown host 'gamma'"]),
                 (["--include", "alpha@alpha"], ["'alpha' twice"]),
                 (["--include", "alpha:2"], ["'alpha' has no slot '2'"]),
                 (["--exclude", "alpha@beta"], ["leaves nothing"]),
                 (["--include", "alpha", "--exclude", "beta"], ["only one of them"]),
                 (["--num-nodes", "3"], ["3 nodes are asked for, but there are 2"]),
                 (["--node-rank", "0"], ["--hostfile hosts", "--node-rank 0", "--no-ssh"]))
        for words, says in cases:
            with self.subTest(words):
                self.refuse_hosts(*hosts, words=words, says=says)


class Words(BadLaunch):
    def test_variables_that_contradict(self):
        here = {"MASTER_ADDR": "127.0.0.1"}
        cases = (({"NNODES": "2", "WORLD_SIZE": "3", "NODE_RANK": "0"}, [], ["NNODES=2", "WORLD_SIZE=3"]),
                 ({"NNODES": "2", "NODE_RANK": "2"}, [], ["NODE_RANK=2", "NNODES=2"]),
                 ({"NNODES": "2", "NODE_RANK": "1"}, ["--node-rank", "0"], ["--node-rank 0", "NODE_RANK=1"]),
                 ({"NODE_RANK": "1"}, [], ["NODE_RANK=1", "how many nodes"]),
                 ({}, ["--nproc-per-node", "2", "--num-gpus", "3"], ["--nproc-per-node 2", "--num-gpus 3"]),
                 ({"RANK": "3", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, [],
                  ["RANK=3", "WORLD_SIZE=2"]),
                 ({"LOCAL_RANK": "x", "RANK": "0", "WORLD_SIZE": "2"}, [], ["LOCAL_RANK is 'x'"]))
        for variables, words, says in cases:
            with self.subTest(variables):
                self.refuse(*words, says=says, **here, **variables)

    def test_numbers(self):
        cases = ((["--nnodes", "two"], "--nnodes is 'two'"), (["--nnodes", "0"], "--nnodes is '0'"),
                 (["--nnodes", "1:4"], "elastic sizes are not supported"),
                 (node(2, 29500), "--node-rank 2 and --nnodes 2"), (node(0, 99999), "--master-port is '99999'"),
                 (["--nproc-per-node", "0"], "--nproc-per-node is '0'"), (["--nproc-per-node"], "needs a value"),
                 (["--max-restarts", "lots"], "--max-restarts is 'lots'"), (["--tee", "4"], "--tee"))
        for words, says in cases:
            with self.subTest(words):
                self.refuse(*words, says=[says])


class Machines(BadLaunch):
    def test_port_of_another_program(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            self.refuse(says=[f"port {port} of 127.0.0.1 is in use", "MASTER_PORT"], MASTER_PORT=port,
                        MASTER_ADDR="127.0.0.1", NODE_RANK="0", WORLD_SIZE="2")

    def test_another_program_in_place_of_machine_0(self):
        """It listens and never says a word."""
        (self.work / "secret").write_bytes(bytes(range(32)))
        (self.work / "secret").chmod(0o600)
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            self.refuse(*node(1, port, "--secret-file", "secret"), code=3,
                        says=[f"node 1 could not join node 0 at 127.0.0.1 port {port} within 2 s"])

    def test_a_machine_that_never_comes(self):
        begun = time.monotonic()
        self.refuse(*node(0, free_port()), code=3, says=["node 1 has not joined within 2 s"])
        port = free_port()
        self.refuse(*node(1, port), code=3,
                    says=[f"node 1 could not join node 0 at 127.0.0.1 port {port} within 2 s"])
        self.assertLess(time.monotonic() - begun, 2 * SOON)

    def test_addresses(self):
        unknown = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "nobody.invalid"]
        self.refuse(*unknown, says=["nobody.invalid"])
        far = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.77"]
        self.refuse(*far, says=["192.0.2.77 is no address of this machine", "--master-addr"])

    def test_a_secret_that_others_can_read(self):
        (self.work / "open").write_bytes(bytes(range(32)))
        (self.work / "open").chmod(0o644)
        self.refuse(*node(1, free_port(), "--secret-file", "open"), says=["open", "chmod 600"])
        self.refuse(*node(1, free_port(), "--secret-file", "nowhere"), says=["nowhere"])

    def test_folders_that_are_not_shared(self):
        """Without --secret-file the machines do not even find each other, and say which file is missing."""
        (self.work / "far").mkdir()
        for name in ("model", "text.txt", "c.yaml"):
            (self.work / "far" / name).symlink_to(self.work / name)
        before = self.snapshot()
        port = free_port()
        processes = [self.start(*node(number, port), folder=folder) for number, folder in ((0, "."), (1, "far"))]
        self.check(processes[0], 3, "node 1 has not joined")
        self.check(processes[1], 3, "node 1 could not join node 0", "out/.skein-secret")
        self.assertEqual(self.snapshot(), before)


if __name__ == "__main__":
    unittest.main()
