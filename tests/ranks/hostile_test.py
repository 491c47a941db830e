# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Files, settings and connections that mean harm: refused with one message, nothing executed, nothing
leaked, and a run under attack ends with the same bytes. What the parsers alone refuse is in the
C++ tests (hostile_test.cpp of checkpoint and launch) and in tests/fuzz."""
import base64
import contextlib
import hashlib
import hmac
import json
import os
import pickle
import resource
import shutil
import socket
import struct
import threading
import time
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import harness
from harness import Workspace, children, finish, free_port, run_skein, wait_until_gone

FIFO_TEXT = "not a regular file"


class Evil:
    """Unpickling it runs a command."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=1, global_batch_size=8, output_dir="out")
        cls.work.run(ranks=1)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def refuse(self, *words, says, code):
        ended = run_skein(words, self.work.folder, code)
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        for part in says:
            self.assertIn(part, ended.stderr)

    def refuse_training(self, *words, says, code=4):
        self.refuse("train", "c.yaml", "--fresh", "output_dir=other", "train_from_scratch=false", *words,
                    says=says, code=code)

    def test_nothing_is_written_through_a_planted_link(self):
        victim = self.work / "victim"
        victim.write_text("kept")
        for name in ("logs/training.log", "logs/rank-0.log"):
            with self.subTest(name):
                planted = self.work / "planted" / name
                planted.parent.mkdir(parents=True, exist_ok=True)
                planted.symlink_to(victim)
                self.refuse("train", "c.yaml", "output_dir=planted", says=[f"{name} is a link"], code=4)
                planted.unlink()
        # Files of a run that goes on take the link's place.
        self.work.run("output_dir=planted")
        replaced = [self.work / "planted" / name for name in ("trainer_log.jsonl", "trainer_state.json", "model.safetensors")]
        for path in replaced:
            path.unlink()
            path.symlink_to(victim)
        self.work.run("output_dir=planted", "max_steps=2")
        self.assertFalse(any(path.is_symlink() for path in replaced))
        self.assertEqual(victim.read_text(), "kept")

    def copy_model(self, name, *left_out):
        """The trained model without some of its files."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in ("config.json", "model.safetensors"):
            if file not in left_out:
                shutil.copy(self.work / "out" / file, folder / file)
        return folder

    def test_pickles_are_not_read(self):  # X1
        canary = self.work / "canary"
        payload = pickle.dumps(Evil(canary), protocol=2)
        (self.work / "evil.pickle").write_bytes(payload)
        with zipfile.ZipFile(self.work / "evil.pt", "w") as archive:  # as torch.save does
            archive.writestr("archive/data.pkl", payload)
            archive.writestr("archive/version", "3\n")
        for file in ("evil.pt", "evil.pickle"):
            with self.subTest(file):
                model = self.copy_model("m", "model.safetensors")
                shutil.copy(self.work / file, model / "pytorch_model.bin")
                self.refuse_training("model_name_or_path=m", says=["pickle files (.bin, .pt)", "python3 -c",
                                     "save_pretrained"], code=2)
                shutil.copy(self.work / file, model / "model.safetensors")
                self.refuse_training("model_name_or_path=m", says=["m/model.safetensors: a pickle"])
                self.refuse("generate", "m", "--prompt", "a", says=["m/model.safetensors: a pickle"],
                            code=4)
                self.refuse_training(f"model_name_or_path={file}", says=[file], code=2)
                self.refuse("train", "c.yaml", f"resume_from_checkpoint={file}", says=[file], code=2)
        self.assertFalse(canary.exists())
        pickle.loads(payload)
        self.assertTrue(canary.exists(), "the payload would have worked")

    def test_an_index_leads_nowhere_else(self):  # X6
        model = self.copy_model("i", "model.safetensors")
        shutil.copy(self.work / "out/model.safetensors", self.work / "outside.safetensors")
        os.mkfifo(model / "fifo")
        (model / "link").symlink_to("../outside.safetensors")
        (model / "device").symlink_to("/dev/zero")
        cases = {"../outside.safetensors": "not a plain file name",
                 str(self.work / "outside.safetensors"): "not a plain file name",
                 "link": "leads out of its folder", "fifo": FIFO_TEXT,
                 "device": "leads out of its folder"}
        for name, says in cases.items():
            with self.subTest(name):
                (model / "model.safetensors.index.json").write_text(
                    json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": name}}))
                self.refuse_training("model_name_or_path=i", says=[says])

    def test_a_model_folder_leads_nowhere_else(self):
        (self.work / "secret").write_text('{"secret": true}')
        for name in ("preprocessor_config.json", "chat_template.jinja", "generation_config.json", "config.json"):
            with self.subTest(name):
                model = self.copy_model("l", name)
                (model / name).symlink_to("../secret")
                self.refuse_training("model_name_or_path=l", says=[f"l/{name} leads out of its folder"])

    def test_text_of_files_writes_no_lines_of_its_own(self):
        adapter = self.work / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(
            json.dumps({"peft_type": "LORA", "target_modules": ["q"], "base_model_name_or_path": "b\nwarning: fake"}))
        (adapter / "adapter_model.safetensors").write_bytes(b"")
        for words in (["merge", "adapter", "--out", "merged"], ["generate", "adapter", "--prompt", "a"]):
            self.refuse(*words, says=["'b\\nwarning: fake'"], code=2)

    def test_a_snapshot_of_the_hub_cache_is_a_model(self):
        blobs, snapshot = self.work / "hub/blobs", self.work / "hub/snapshots/rev"
        snapshot.mkdir(parents=True)
        self.copy_model("hub/blobs")
        (blobs / "generation_config.json").write_text('{"top_k": 7}')
        for blob in blobs.iterdir():
            (snapshot / blob.name).symlink_to(f"../../blobs/{blob.name}")
        self.work.run("--fresh", "output_dir=from_hub", "train_from_scratch=false", f"model_name_or_path={snapshot}")
        self.assertEqual(json.loads((self.work / "from_hub/generation_config.json").read_text())["top_k"], 7)

    def test_pipes_are_not_waited_for(self):
        for file, says in {"config.json": FIFO_TEXT, "model.safetensors": FIFO_TEXT,
                           "tokenizer.json": "p/tokenizer.json is no regular file"}.items():
            with self.subTest(file):
                model = self.copy_model("p", file)
                os.mkfifo(model / file)
                ended = run_skein(["train", "c.yaml", "output_dir=other", "model_name_or_path=p",
                                   "train_from_scratch=false"], self.work.folder, None)
                self.assertIn(ended.returncode, (2, 4), ended.stderr)
                self.assertIn(says, ended.stderr)
        os.mkfifo(self.work / "pipe.yaml")
        self.refuse("train", "pipe.yaml", says=["pipe.yaml", FIFO_TEXT], code=2)


class Settings(unittest.TestCase):
    def test_refused_with_their_place(self):  # X14
        canary = "canary"
        cases = {"auto_map: {AutoModel: evil.Model}": "unknown key 'auto_map.AutoModel'",
                 "_target_: os.system": "unknown key '_target_'",
                 "model_class: evil.Model": "unknown key",
                 "learning_rat: 1": "did you mean 'learning_rate'",
                 f"seed: !!python/object/apply:os.system ['touch {canary}']": "'seed' must be",
                 "max_steps: 99999999999999999999": "'max_steps' must be a whole number",
                 "max_steps: 1e300": "'max_steps' must be a whole number",
                 "learning_rate: 1e999": "'learning_rate' must be a number",
                 "learning_rate: .nan": "'learning_rate' must be a number",
                 "seed: -9223372036854775809": "'seed' must be",
                 f"output_dir: $(touch {canary})\nx: 1": "unknown key 'x'",
                 "a: " + "[" * 5000: "not well-formed YAML",
                 ',a ["b]': "more than one YAML document"}
        with Workspace() as work:
            for text, says in cases.items():
                with self.subTest(text[:60]):
                    (work / "c.yaml").write_text(text + "\n")
                    ended = work.run(code=2)
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                    self.assertIn(says, ended.stderr)
            self.assertEqual([path.name for path in work.folder.rglob(canary)], [])

    def test_a_folder_with_shell_words_is_a_folder(self):
        with Workspace(max_steps=1, global_batch_size=8) as work:
            name = "a;touch canary $(touch canary) `touch canary`"
            work.run(f"output_dir={name}", ranks=2)
            self.assertTrue((work / name / "model.safetensors").exists())
            self.assertFalse((work / "canary").exists())


class Hosts(unittest.TestCase):
    def test_names_that_are_options_or_commands(self):  # X13
        with Workspace(output_dir="out") as work:
            # An ssh of our own in front: it must not even be asked.
            (work / "bin").mkdir()
            (work / "bin/ssh").write_text("#!/bin/sh\ntouch \"$0.canary\"\nexit 255\n")
            (work / "bin/ssh").chmod(0o755)
            path = {"PATH": f"{work / 'bin'}:{os.environ['PATH']}"}
            for line in ("-oProxyCommand=touch${IFS}canary slots=1", "me@-oProxyCommand=x slots=1",
                         "a;touch canary slots=1", "a$(touch${IFS}canary) slots=1", "a`id` slots=1",
                         "a|b slots=1", "a slots=1;touch canary", "../a slots=1", "a\x00b slots=1",
                         "a slots=1\nb\rc slots=1"):
                with self.subTest(line), mock.patch.dict(harness.ENVIRONMENT, path):
                    (work / "hosts").write_text(line + "\n")
                    ended = work.run("--hostfile", "hosts", code=2)
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                    self.assertIn("hosts:", ended.stderr)
            self.assertEqual([path.name for path in work.folder.rglob("*canary")], [])


class Secrets(unittest.TestCase):
    def test_none_is_written_or_shown(self):  # X16
        tokens = {"WANDB_API_KEY": "canary-wandb-0123456789abcdef", "HF_TOKEN": "hf_canary0123456789",
                  "AWS_SECRET_ACCESS_KEY": "canary-aws"}
        with Workspace(max_steps=150, global_batch_size=8, output_dir="out", save_steps=100,
                       report_to=["wandb", "tensorboard"]) as work, \
                mock.patch.dict(harness.ENVIRONMENT, tokens):
            process = work.start(ranks=2)
            work.wait_for_step(process, "out", 1)
            secret = run_secret(process.pid)
            ranks = children(process.pid)
            self.assertEqual(len(ranks), 2)
            shown = b"".join(Path(f"/proc/{pid}/{name}").read_bytes()
                             for pid in (process.pid, *ranks) for name in ("cmdline", "environ"))
            arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes()
                                 for pid in (process.pid, *ranks))
            ended = finish(process, 0)
            written = {path: path.read_bytes() for path in work.folder.rglob("*") if path.is_file()}
            self.assertTrue(any(path.suffix == ".wandb" for path in written))
            written["stdout and stderr"] = (ended.stdout + ended.stderr).encode()
        for form in (secret, secret.hex().encode(), base64.b64encode(secret)):
            self.assertNotIn(form, shown)
            for place, text in written.items():
                self.assertNotIn(form, text, place)
        for token in tokens.values():
            self.assertNotIn(token.encode(), arguments)
            for place, text in written.items():
                self.assertNotIn(token.encode(), text, place)


def listeners(pid):
    """[(address, port)] of the TCP sockets that a process listens on."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(os.readlink(link))
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or f"socket:[{fields[9]}]" not in inodes:
                continue
            address, port = fields[1].split(":")
            words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
            found.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def run_secret(launcher):
    """Out of the launcher's own memory: only its user can."""
    for link in Path(f"/proc/{launcher}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:skein-secret" in os.readlink(link):
                return link.read_bytes()[:32]
    raise AssertionError("the launcher holds no secret")


class Peer:
    """Speaks the store's protocol (skein/control/handshake.h, frame.h) by hand."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def send(self, data):
        with contextlib.suppress(OSError):  # closed already
            self.socket.sendall(data)

    def receive(self, size):
        """Up to `size` bytes; fewer when the store closes the connection."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < size and (more := self.socket.recv(size - len(data))):
                data += more
        return data

    def is_closed(self):
        closed = self.receive(1) == b""
        self.socket.close()
        return closed

    def join(self, secret, generation=0, role=1, rank=0):
        """False when the hello alone is refused."""
        hello = b"skeinst1" + struct.pack("<IIQ", role, rank, generation) + os.urandom(32)
        self.send(hello)
        challenge = self.receive(64)
        if len(challenge) < 64:
            return False

        def derive(label):
            return hmac.digest(secret, label + b"\0" + hello + challenge[:32], "sha256")
        if challenge[32:] == derive(b"skein refusal"):
            return False
        self.key = derive(b"skein key to store")
        self.send(derive(b"skein rank proof"))
        return True

    def call(self, body, sequence=0):
        frame = struct.pack("<I", len(body)) + body
        self.send(frame + hmac.digest(self.key, struct.pack("<Q", sequence) + frame, "sha256"))

    def set(self, key, value):
        self.call(struct.pack("<BqI", 1, 0, len(key)) + key + value)


class Recorder:
    """Keeps the first handshake that crosses the loopback; needs root."""

    def __init__(self):
        self.hello = self.proof = self.port = None
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.ended = False
        self.thread = threading.Thread(target=self.record)
        self.thread.start()

    def record(self):
        while not self.ended and not self.proof:
            with contextlib.suppress(TimeoutError):
                self.take(self.socket.recv(65536)[14:])

    def take(self, packet):
        if packet[0] >> 4 != 4 or packet[9] != 6:
            return
        segment = packet[(packet[0] & 15) * 4:struct.unpack(">H", packet[2:4])[0]]
        source, target = struct.unpack(">HH", segment[:4])
        data = segment[(segment[12] >> 4) * 4:]
        if data.startswith(b"skeinst1"):
            self.hello, self.port, self.source = data, target, source
        elif self.hello and source == self.source and len(data) == 32:
            self.proof = data

    def stop(self):
        self.ended = True
        self.thread.join()
        self.socket.close()


class Connections(unittest.TestCase):
    """A run of two ranks, attacked from its third step to its end."""

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=300, global_batch_size=8, save_steps=150, logging_steps=1)
        cls.work.run("output_dir=quiet", ranks=2)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        cls.most_connections = min(2000, hard - 200)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def attack(self, name, rounds):
        """Runs `rounds(launcher's pid, store's port)` again and again while the run goes on."""
        process = self.work.start(f"output_dir={name}", ranks=2)
        try:
            self.work.wait_for_step(process, name, 3)
            ports = self.check_listeners(process.pid)
            count = 0
            while count < 5 and process.poll() is None:
                try:
                    rounds(process.pid, ports[0][1])
                except (OSError, AssertionError):
                    if not wait_until_gone([process.pid], 3):
                        break  # the run ended in the middle of a round
                    raise
                count += process.poll() is None
            self.assertGreater(count, 0, "the run ended before an attack was over")
        finally:
            ended = finish(process)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        for file in ("model.safetensors", "checkpoint-300/optimizer.safetensors"):
            self.assertEqual(digest(self.work / name / file), digest(self.work / "quiet" / file))

    def check_listeners(self, launcher):  # X12
        """All processes listen on the loopback alone, Gloo's sockets included."""
        found = {pid: listeners(pid) for pid in (launcher, *children(launcher))}
        self.assertEqual(len(found), 3)
        self.assertEqual(len(found[launcher]), 1)
        for address, port in sum(found.values(), []):
            self.assertIn(address, ("127.0.0.1", "::1", "::ffff:127.0.0.1"), port)
        return found[launcher]

    def test_strangers(self):  # X10, X11
        def rounds(launcher, port):
            silent = Peer(port)
            junk = Peer(port)
            junk.send(b"GET / HTTP/1.1\r\nHost: " + b"x" * 100_000)
            self.assertTrue(junk.is_closed())
            liar = Peer(port)
            self.assertTrue(liar.join(os.urandom(32)))
            liar.set(b"comm/gloo/joined", b"99")
            self.assertTrue(liar.is_closed())
            secret = run_secret(launcher)
            for generation, rank, role in ((1, 0, 1), (0, 2, 1), (0, 0, 7)):
                stranger = Peer(port)
                self.assertFalse(stranger.join(secret, generation, role, rank))
                self.assertTrue(stranger.is_closed())
            insider = Peer(port)  # the protocol is spoken right: the refusals are for the reasons given
            self.assertTrue(insider.join(secret))
            insider.set(b"hostile_test", b"1")
            self.assertEqual(len(insider.receive(4 + 9 + 32)), 4 + 9 + 32)
            insider.send(struct.pack("<I", 1 << 30) + b"x" * 1000)  # a frame of 1 GiB
            self.assertTrue(insider.is_closed())
            self.assertTrue(silent.is_closed())
        self.attack("strangers", rounds)

    def test_a_crowd(self):  # X10
        def rounds(_, port):
            crowd = []
            for _ in range(self.most_connections):
                crowd.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            for stranger in crowd:
                stranger.close()
        self.attack("crowd", rounds)

    def test_a_recorded_handshake(self):  # X10
        try:
            recorder = Recorder()
        except PermissionError:
            self.skipTest("recording the loopback needs root")
        self.addCleanup(recorder.stop)

        def rounds(_, port):
            self.assertIsNotNone(recorder.proof, "no handshake was recorded")
            replay = Peer(port)
            replay.send(recorder.hello)
            self.assertEqual(len(replay.receive(64)), 64)
            replay.send(recorder.proof)
            self.assertTrue(replay.is_closed())
        self.attack("recorded", rounds)
        self.assertEqual(len(recorder.hello), 56)


class Machines(unittest.TestCase):
    """Two launchers, both on this machine."""

    def test_a_fake_machine_comes_first(self):  # X11, X12, X16
        with Workspace(max_steps=40, global_batch_size=8) as work:
            work.run("output_dir=quiet", ranks=2)
            port = free_port()
            flags = ("output_dir=out", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port",
                     str(port))
            nodes = [work.start(*flags, "--node-rank", "0", ranks=1)]
            try:
                self.wait_for_port(nodes[0], port)
                for role in (2, 3, 3):  # a node, or a launcher that asks for its place
                    fake = Peer(port)
                    self.assertTrue(fake.join(os.urandom(32), role=role, rank=1))
                    fake.set(b"node/status/1", b"{}")
                    self.assertTrue(fake.is_closed())
                secret_file = work / "out/.skein-secret"
                self.assertEqual(secret_file.stat().st_mode & 0o777, 0o600)
                secret = secret_file.read_text().strip()
                nodes.append(work.start(*flags, "--node-rank", "1", ranks=1))
                work.wait_for_step(nodes[0], "out", 3)
                found = sum((listeners(pid) for node in nodes
                             for pid in (node.pid, *children(node.pid))), [])
            finally:
                ended = [finish(node) for node in nodes]
            self.assertEqual([node.returncode for node in ended], [0, 0], ended[0].stderr)
            self.assertIn(("127.0.0.1", port), found)
            self.assertEqual({address for address, _ in found}, {"127.0.0.1"})
            for node in ended:
                self.assertNotIn(secret, node.stdout + node.stderr)
            self.assertEqual(digest(work / "out/model.safetensors"),
                             digest(work / "quiet/model.safetensors"))

    def test_a_process_of_an_older_start(self):
        """With the same secret file: what it has kept opens nothing in the next run."""
        with Workspace(max_steps=100000, global_batch_size=8, save_steps=100000) as work:
            port = free_port()
            secret = work / "secret"
            secret.write_text("0123456789abcdef" * 4)
            secret.chmod(0o600)
            flags = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
                     "--secret-file", str(secret))
            kept = []
            for output in ("first", "second"):
                nodes = [work.start(f"output_dir={output}", *flags, "--node-rank", str(node), ranks=1)
                         for node in (0, 1)]
                try:
                    work.wait_for_step(nodes[0], output, 1)
                    kept.append(run_secret(nodes[0].pid))
                    for old in kept[:-1]:
                        for role, generation in ((1, 0), (2, 1)):
                            ghost = Peer(port)
                            ghost.join(old, generation, role, rank=1)
                            ghost.set(b"comm/gloo/joined", b"99")
                            self.assertTrue(ghost.is_closed())
                    insider = Peer(port)
                    self.assertTrue(insider.join(kept[-1], rank=1))
                    insider.socket.close()
                finally:
                    for node in nodes:
                        node.kill()
                        finish(node)
            self.assertNotEqual(*kept)

    def wait_for_port(self, process, port):
        give_up = time.monotonic() + harness.TIMEOUT
        while ("127.0.0.1", port) not in listeners(process.pid):
            self.assertLess(time.monotonic(), give_up)
            self.assertIsNone(process.poll())
            time.sleep(0.02)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    unittest.main()
