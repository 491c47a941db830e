# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A hostfile's nodes over ssh: an `ssh` of the test's own runs the command on this machine and writes
down what it was given."""
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, Workspace, children, finish, free_port, wait_until_gone

# Like sshd: the words after the host go through a shell, in a clean environment and another folder.
FAKE_SSH = """#!/bin/sh
printf '%s\\n' "$@" -- >> "$SSH_RECORD"  # at once: two of them may write
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
  unreachable) echo "ssh: connect to host $host: No route to host" >&2; exit 255;;
esac
cd /
exec env -i PATH=/usr/bin:/bin HOME="$HOME" XDG_CACHE_HOME="$XDG_CACHE_HOME" OMP_NUM_THREADS=1 sh -c "$*"
"""


def descendants(pid):
    found = children(pid)
    return found + [each for child in found for each in descendants(child)]


class Ssh(unittest.TestCase):
    def setUp(self):
        self.work = Workspace(max_steps=4, global_batch_size=8, save_steps=2)
        self.addCleanup(shutil.rmtree, self.work.folder)
        (self.work / "bin").mkdir()
        (self.work / "bin/ssh").write_text(FAKE_SSH)
        (self.work / "bin/ssh").chmod(0o755)
        self.record = self.work / "record.txt"
        self.environment = ENVIRONMENT | {
            "PATH": f"{self.work.folder}/bin:{os.environ['PATH']}", "SSH_RECORD": str(self.record),
            "NCCL_DEBUG": "WARN; touch $HOME/x", "WANDB_API_KEY": "very-private"}

    def hostfile(self, *lines):
        (self.work / "hosts").write_text("".join(line + "\n" for line in lines))

    def start(self, *words):
        # Names of no machine: 127.0.0.1 is where all of them meet.
        command = [SKEIN, "train", "c.yaml", "--hostfile", "hosts", "--master-addr", "127.0.0.1",
                   "--master-port", str(free_port()), *words]
        process = subprocess.Popen(command, cwd=self.work.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        started = descendants(process.pid)
        if process.poll() is None:
            process.kill()
        process.communicate()
        wait_until_gone(started)  # they write into the folder to their end

    def calls(self):
        """What each ssh was given. A line `--` follows the last word."""
        calls, words = [], []
        for line in self.record.read_text().splitlines() if self.record.exists() else []:
            if line == "--" and words and words[-1] == "remote-node":
                calls.append(words)
                words = []
            else:
                words.append(line)
        return calls

    def start_long_run(self):
        """Two hosts, past their second step."""
        self.work.keys["max_steps"] = 100_000
        self.work.write_recipe(self.work.keys)
        self.hostfile("alpha slots=1", "beta slots=1")
        process = self.start("output_dir=out")
        self.work.wait_for_step(process, "out", 2)
        return process


class Nodes(Ssh):
    def test_same_bytes_as_one_machine(self):
        self.work.run("output_dir=own", ranks=2)
        self.hostfile("alpha slots=1", "beta slots=1  # the other one")
        ended = finish(self.start("output_dir=out", "run_name=it's $(touch hacked) \"x\""), 0)
        self.assertEqual((self.work / "own/model.safetensors").read_bytes(),
                         (self.work / "out/model.safetensors").read_bytes())
        self.assertIn("[alpha] ", ended.stderr)
        self.assertFalse((self.work / "hacked").exists())
        self.assertFalse(Path("/hacked").exists())
        hosts = [call[call.index("--") + 1] for call in self.calls()]
        self.assertEqual(sorted(hosts), ["alpha", "beta"])
        for call in self.calls():
            self.assertEqual(call[-2:], [str(SKEIN), "remote-node"])
            self.assertIn("BatchMode=yes", call)
            self.assertEqual(len(call), 6, call)

    def test_ssh_port_and_choice(self):
        self.hostfile("alpha slots=1", "beta slots=1", "gamma slots=1")
        finish(self.start("output_dir=out", "--exclude", "gamma", "--ssh-port", "2222"), 0)
        self.assertEqual(len(self.calls()), 2)
        for call in self.calls():
            self.assertEqual(call[call.index("-p") + 1], "2222")

    def test_this_machine_needs_no_ssh(self):
        self.hostfile("localhost slots=2")
        finish(self.start("output_dir=out"), 0)
        self.assertEqual(self.calls(), [])
        self.assertTrue((self.work / "out/model.safetensors").exists())

    def test_no_secret_in_arguments_or_environments(self):
        process = self.start_long_run()
        started = [process.pid, *descendants(process.pid)]
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in started}
        variables = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in started}
        for word in [word for words in [*commands.values(), *variables.values()] for word in words]:
            value = word.rpartition(b"=")[2]
            is_secret = len(value) == 64 and all(c in b"0123456789abcdef" for c in value)
            self.assertFalse(is_secret, word)
        ranks = [pid for pid in started if b"skein-worker" in commands[pid][0]]
        self.assertEqual(len(ranks), 2)
        for pid in ranks:
            self.assertIn(b"NCCL_DEBUG=WARN; touch $HOME/x", variables[pid])
            self.assertNotIn(b"WANDB_API_KEY=very-private", variables[pid])

    def test_a_lost_node_is_started_again(self):
        self.work.keys["max_steps"] = 40
        self.work.write_recipe(self.work.keys)
        self.work.run("output_dir=own", ranks=2)
        self.hostfile("alpha slots=1", "beta slots=1")
        process = self.start("output_dir=out", "--max-restarts", "1")
        self.work.wait_for_step(process, "out", 5)
        launcher = next(pid for pid in descendants(process.pid)
                        if b"--node-rank=1" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(launcher, signal.SIGKILL)
        ended = finish(process, 0)
        self.assertIn("node 1 on beta was lost: starting it again (1 of 1)", ended.stderr)
        self.assertEqual((self.work / "own/model.safetensors").read_bytes(),
                         (self.work / "out/model.safetensors").read_bytes())

    def test_stop(self):
        process = self.start_long_run()
        started = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        finish(process, 75)
        self.assertTrue((self.work / "out/latest").exists())
        self.assertEqual(wait_until_gone(started), [])

    def test_starter_killed(self):
        process = self.start_long_run()
        started = descendants(process.pid)
        process.kill()
        self.assertEqual(wait_until_gone(started), [])

    def test_killed_rank(self):
        process = self.start_long_run()
        started = descendants(process.pid)
        rank = next(pid for pid in started
                    if b"skein-worker" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(rank, signal.SIGKILL)
        ended = finish(process, 1)
        self.assertIn("SIGKILL", ended.stderr)
        self.assertEqual(wait_until_gone(started), [])


class Refusals(Ssh):
    def refuse(self, *words, says, code=2):
        ended = finish(self.start("output_dir=out", *words), code)
        for part in says:
            self.assertIn(part, ended.stderr)

    def test_options_in_the_hostfile(self):
        self.hostfile("alpha slots=1", "-oProxyCommand=touch${IFS}hacked slots=1")
        self.refuse(says=["hosts:2"])
        self.assertEqual(self.calls(), [])
        self.assertFalse((self.work / "hacked").exists())

    def test_duplicate_and_unknown_host(self):
        self.hostfile("alpha slots=1", "alpha slots=1")
        self.refuse(says=["hosts:2", "alpha"])
        self.hostfile("alpha slots=1", "beta slots=1")
        self.refuse("--include", "delta", says=["delta"])
        self.assertEqual(self.calls(), [])

    def test_unreachable_host(self):
        self.hostfile("alpha slots=1", "unreachable slots=1")
        begun = time.monotonic()
        self.refuse(says=["No route to host", "node 1 on unreachable"], code=3)
        self.assertLess(time.monotonic() - begun, 30)

    def test_remote_node_by_hand(self):
        for text in ("", "{}\n", "x" * 3_000_000):
            ended = subprocess.run([SKEIN, "remote-node"], input=text, capture_output=True, text=True,
                                   env=ENVIRONMENT, cwd=self.work.folder, timeout=60)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("remote-node", ended.stderr)


if __name__ == "__main__":
    unittest.main()
