# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Several machines: the same bytes as on one, and an end in bounded time whatever is lost.

Two launchers on 127.0.0.1 are two nodes; two network namespaces with a cable between them are two
machines (root only).
"""
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from harness import ENVIRONMENT, SKEIN, TIMEOUT, Workspace, children, finish, free_port, kill, wait_until_gone

STEPS = 30
SOON = 10  # seconds on a busy machine for what takes three


class Nodes(unittest.TestCase):
    prefix = ((), ())  # what each node's command is run by
    address = "127.0.0.1"

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(num_blocks=20, global_batch_size=8, max_steps=STEPS, save_steps=5)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def start(self, node, port, *words):
        command = [*self.prefix[node], SKEIN, "train", "c.yaml", *words, "--nproc-per-node", "1",
                   "--nnodes", "2", "--node-rank", str(node), "--master-addr", self.address,
                   "--master-port", str(port)]
        process = subprocess.Popen(command, cwd=self.work.folder, env=ENVIRONMENT,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_both(self, *words):
        port = free_port()
        return [self.start(node, port, *words) for node in (0, 1)]

    def start_endless(self, output):
        """Two nodes in the midst of a run; also their ranks."""
        both = self.start_both(f"output_dir={output}", "max_steps=100000", "save_steps=100000")
        self.work.wait_for_step(both[0], output, 3)
        ranks = [children(process.pid) for process in both]
        self.assertEqual([len(pids) for pids in ranks], [1, 1])
        return both, [pids[0] for pids in ranks]

    def assert_ends(self, process, code, *parts, within=SOON):
        begun = time.monotonic()
        ended = finish(process, code)
        self.assertLess(time.monotonic() - begun, within, ended.stderr)
        for part in parts:
            self.assertIn(part, ended.stderr)
        return ended


class OneMachine(Nodes):
    def test_same_bytes_as_one_node_also_after_a_rank_was_killed(self):
        self.work.run("output_dir=whole", ranks=2)
        whole = (self.work / "whole/model.safetensors").read_bytes()
        for process in self.start_both("output_dir=two"):
            finish(process, 0)
        self.assertEqual((self.work / "two/model.safetensors").read_bytes(), whole)

        both = self.start_both("output_dir=again", "--max-restarts", "1")
        self.work.wait_for_step(both[0], "again", 7)
        kill(children(both[1].pid)[:1])
        head, other = (finish(process, 0) for process in both)
        self.assertIn("rank 1 of 2", head.stderr)
        self.assertIn("killed by SIGKILL", head.stderr)
        self.assertIn("restarting (1 of 1)", head.stderr)
        self.assertNotIn("restarting", other.stderr)
        self.assertEqual((self.work / "again/model.safetensors").read_bytes(), whole)
        left = [path.name for path in (self.work / "again").iterdir() if path.name.startswith(".")]
        self.assertEqual(left, [".skein-run"])

    def test_node_0_killed(self):
        both, ranks = self.start_endless("headless")
        both[0].kill()
        self.assert_ends(both[1], 3, "has lost node 0")
        self.assertEqual(wait_until_gone(ranks), [])

    def test_node_1_killed(self):
        both, ranks = self.start_endless("alone")
        both[1].kill()
        self.assert_ends(both[0], 3, "node 1 (", "has not been heard", "to continue")
        self.assertEqual(wait_until_gone(ranks), [])

    def test_rank_killed(self):
        both, ranks = self.start_endless("killed")
        kill(ranks[1:])
        self.assert_ends(both[0], 1, "rank 1 of 2", "killed by SIGKILL")
        self.assert_ends(both[1], 1, "rank 1 of 2", "node 0")
        self.assertEqual(wait_until_gone(ranks, seconds=0), [])

    def test_rank_stopped_for_good(self):
        both, ranks = self.start_endless("frozen")
        os.kill(ranks[1], signal.SIGSTOP)
        self.assert_ends(both[0], 3, "rank 1", str(ranks[1]), within=2 * SOON)
        self.assert_ends(both[1], 3, "rank 1")
        self.assertEqual(wait_until_gone(ranks, seconds=0), [])

    def test_stop_request_on_any_node(self):
        both, _ = self.start_endless("stopped")
        both[1].send_signal(signal.SIGTERM)
        for process in both:
            finish(process, 75)
        step = len(self.work.records("stopped"))
        self.assertTrue((self.work / f"stopped/checkpoint-{step}").exists())

    def test_stopped_while_waiting_for_the_other(self):
        for node in (0, 1):
            process = self.start(node, free_port(), "output_dir=waiting")
            while "speaks with the others" not in process.stderr.readline():
                pass
            time.sleep(0.5)  # data is prepared with the signals' usual effect
            process.send_signal(signal.SIGTERM)
            finish(process, 75)

    def test_configurations_that_differ(self):
        port = free_port()
        both = [self.start(0, port, "output_dir=differ"),
                self.start(1, port, "output_dir=differ", "learning_rate=0.5")]
        for process in both:
            self.assert_ends(process, 2, "learning_rate", within=30)

    def test_a_lost_node_that_is_started_wrongly_first(self):
        """The wrong command is told so, and the right one finds the others still waiting."""
        port = free_port()
        words = ("output_dir=wrongly", "--max-restarts", "1")
        both = [self.start(node, port, *words) for node in (0, 1)]
        self.work.wait_for_step(both[0], "wrongly", 7)
        both[1].kill()
        both[1].wait()
        for wrong, told in (("learning_rate=0.5", "learning_rate"), ("train_file=nowhere.txt", "nowhere.txt")):
            self.assert_ends(self.start(1, port, *words, wrong), 2, told, within=30)
        both[1] = self.start(1, port, *words)
        head, _ = (finish(process, 0) for process in both)
        self.assertEqual(head.stderr.count("node 1 was sent away"), 2, head.stderr)
        self.assertEqual(head.stderr.count("restarting (1 of 1)"), 1, head.stderr)

    def test_data_that_is_missing_on_one_node(self):
        for poor in (0, 1):
            port = free_port()
            words = [["output_dir=nodata"], ["output_dir=nodata"]]
            words[poor].append("train_file=nowhere.txt")
            for process in [self.start(node, port, *words[node]) for node in (0, 1)]:
                self.assert_ends(process, 2, "nowhere.txt", within=30)

    def test_two_launchers_with_one_number(self):
        both, _ = self.start_endless("twins")
        port = both[1].args[-1]
        twin = self.start(1, port, "output_dir=twins", "max_steps=100000", "save_steps=100000")
        # Only once the other one must have been missed, if it were lost.
        self.assert_ends(twin, 2, "node 1 has joined already", "--node-rank", within=30)
        step = len(self.work.records("twins"))
        self.work.wait_for_step(both[0], "twins", step + 3)  # the run goes on

    def test_busy_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            head = self.start(0, port, "output_dir=busy")
            self.assert_ends(head, 2, f"port {port}", "--master-port", within=30)

    def test_strangers_do_no_harm(self):
        both, _ = self.start_endless("strangers")
        port = int(both[0].args[-1])
        sockets = []
        for i in range(200):
            peer = socket.create_connection(("127.0.0.1", port))
            if i % 2:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            sockets.append(peer)
        step = len(self.work.records("strangers"))
        self.work.wait_for_step(both[0], "strangers", step + 20)
        for peer in sockets:
            peer.close()
        both[0].send_signal(signal.SIGTERM)
        for process in both:
            finish(process, 75)

    def test_a_flood_of_connections(self):
        both, _ = self.start_endless("flood")
        flood = SKEIN.parents[1] / "tests/flood"
        before = len(self.work.records("flood"))
        said = subprocess.run([flood, "127.0.0.1", both[0].args[-1], "8"], capture_output=True,
                              text=True, check=True, timeout=TIMEOUT).stdout
        self.assertEqual([process.poll() for process in both], [None, None], said)
        self.work.wait_for_step(both[0], "flood", before + 3)
        self.assertGreater(int(said.split()[0]), 1000, said)
        both[0].send_signal(signal.SIGTERM)
        for process in both:
            finish(process, 75)

    def test_a_secret_file(self):
        secret = self.work / "secret"
        secret.write_text("0123456789abcdef" * 4)
        secret.chmod(0o644)
        port = free_port()
        words = ("output_dir=secret-run", "max_steps=3", "--secret-file", str(secret))
        self.assert_ends(self.start(0, port, *words), 2, "chmod 600", within=30)
        secret.chmod(0o600)
        for process in [self.start(node, port, *words) for node in (0, 1)]:
            finish(process, 0)


def can_make_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"skein-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return made.returncode == 0


@unittest.skipUnless(can_make_namespaces(), "needs root and `ip netns`")
class TwoMachines(Nodes):
    address = "10.213.7.1"

    def setUp(self):
        self.names = [f"skein-{os.getpid()}-{i}" for i in (0, 1)]
        self.prefix = [("ip", "netns", "exec", name) for name in self.names]
        for name in self.names:
            self.ip("netns", "add", name)
            self.addCleanup(self.ip, "netns", "delete", name)
        self.ip("link", "add", "skein0", "netns", self.names[0], "type", "veth",
                "peer", "name", "skein1", "netns", self.names[1])
        for i, name in enumerate(self.names):
            self.ip("-n", name, "address", "add", f"10.213.7.{i + 1}/24", "dev", f"skein{i}")
            self.ip("-n", name, "link", "set", f"skein{i}", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def test_cable_pulled(self):
        both, ranks = self.start_endless("cable")
        self.ip("-n", self.names[0], "link", "set", "skein0", "down")
        self.assert_ends(both[0], 3, "node 1 (", "has not been heard")
        self.assert_ends(both[1], 3, "has lost node 0")
        self.assertEqual(wait_until_gone(ranks), [])
        # The same command continues once the cable is back.
        self.ip("-n", self.names[0], "link", "set", "skein0", "up")
        both = self.start_both("output_dir=cable", "max_steps=3")
        for process in both:
            ended = finish(process, 0)
            self.assertIn("10.213.7.", ended.stderr)

    def lose_and_start_again(self, output, lose, *more):
        """Two machines; lose(the processes) loses the second, which is then started again."""
        port = free_port()
        words = (f"output_dir={output}", "--max-restarts", "1", *more)
        both = [self.start(node, port, *words) for node in (0, 1)]
        self.work.wait_for_step(both[0], output, 12)
        ranks = [children(process.pid)[0] for process in both]
        lose(both)
        self.assertEqual(wait_until_gone(ranks), [])
        self.assertIsNone(both[0].poll())
        both[1] = self.start(1, port, *words)
        head, other = (finish(process, 0) for process in both)
        self.assertIn("launch: node 1 ", head.stderr)
        self.assertIn("restarting (1 of 1) once all nodes are here", head.stderr)
        self.assertNotIn("joined already", other.stderr)
        self.work.run("output_dir=whole", "--fresh", ranks=2)
        for file in ("model.safetensors", f"checkpoint-{STEPS}/optimizer.safetensors"):
            self.assertEqual((self.work / output / file).read_bytes(),
                             (self.work / "whole" / file).read_bytes(), file)

    def test_a_machine_killed_and_started_again(self):
        def kill_launcher(both):
            both[1].kill()
            both[1].wait()
        # A run that was to begin without a checkpoint has some by then, and is gone on with all the same.
        self.lose_and_start_again("replaced", kill_launcher, "resume_from_checkpoint=false")

    def test_a_machine_that_was_cut_off_and_started_again(self):
        def pull_cable(both):
            self.ip("-n", self.names[0], "link", "set", "skein0", "down")
            self.assert_ends(both[1], 3, "has lost node 0")
            self.ip("-n", self.names[0], "link", "set", "skein0", "up")
        self.lose_and_start_again("cut", pull_cable)

    def test_address_of_the_other_machine(self):
        self.prefix = self.prefix[::-1]
        head = self.start(0, 29500, "output_dir=wrong")
        self.assert_ends(head, 2, "10.213.7.1 is no address of this machine", within=30)


if __name__ == "__main__":
    unittest.main()
