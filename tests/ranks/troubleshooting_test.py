# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""docs/troubleshooting.md quotes what skein prints: the messages that a machine without GPUs can show are
made here and looked for in the page. Those of ranks that die or hang are made by tests/faults."""
import re
import shutil
import socket
import subprocess
import unittest

from harness import ENVIRONMENT, ROOT, SKEIN, ChatWorkspace, Workspace, finish, free_port, run_skein

PAGE = " ".join((ROOT / "docs/troubleshooting.md").read_text().split())


class ChatData(unittest.TestCase):
    def quoted(self, stderr):
        error = re.sub(r"digest (\w{4})\w*", "digest …", stderr[stderr.index("error: "):].strip())
        self.assertIn(error, re.sub(r"digest \w{4}…", "digest …", PAGE))

    def test_what_newcomers_meet_first(self):
        with ChatWorkspace(output_dir="out", max_steps=2, global_batch_size=4) as work:
            self.quoted(work.run("template=", code=2).stderr)
            work.write_rows([{"messages": [{"role": "user", "content": "x" * 300},
                                           {"role": "assistant", "content": "y"}]}] * 8)
            self.quoted(work.run("cutoff_len=64", code=4).stderr)
            work.write_chat(40)
            for name, seed in (("base", 1), ("base2", 2)):
                work.run(f"output_dir={name}", f"seed={seed}")
            work.run("output_dir=ad", "model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora")
            self.quoted(run_skein(["merge", "ad", "--base", "base2", "--out", "m"], work.folder, code=2).stderr)


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(output_dir="out", max_steps=1)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def errors(self, *commands, **variables):
        """What each of them, started together, gives as its error."""
        started = [subprocess.Popen([SKEIN, "train", "c.yaml", *words], cwd=self.work.folder,
                                    env=ENVIRONMENT | variables, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    start_new_session=True) for words in commands]
        ends = [finish(process) for process in started]
        for end in ends:
            self.assertIn(end.returncode, (2, 3, 4), end.stderr)
        return [end.stderr[end.stderr.index("error: "):].strip() for end in ends]

    def quoted(self, *words, **variables):
        error, = self.errors(words, **variables)
        self.assertIn(error.splitlines()[0], PAGE)

    def test_one_rank_and_several(self):
        self.quoted("distributed=false", "--nproc-per-node", "2")

    def test_contradictions(self):
        self.quoted("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", NNODES="3")
        self.quoted(WORLD_SIZE="2")
        self.quoted(LOCAL_RANK="0")

    def test_data(self):
        self.quoted("train_file=nowhere.txt")
        self.quoted("train_file=", "train_file_dir=nope")
        (self.work / "bad.jsonl").write_text('{"text": "a"}\n{"txt": 1}\n')
        self.quoted("train_file=bad.jsonl")

    def test_port_of_another_program(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            error, = self.errors(["--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                                  "--master-port", port])
        self.assertIn(error.replace(port, "29500").replace("127.0.0.1", "192.168.1.100"), PAGE)

    def test_machines_that_do_not_meet(self):
        port = str(free_port())
        words = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port,
                 "--rdzv-conf", "join_timeout=1", "output_dir=alone", "--node-rank"]
        first, = self.errors([*words, "0"])
        self.assertIn(first.splitlines()[0].replace("1 s:", "600 s:"), PAGE)
        second, = self.errors([*words, "1"])
        reason = second.partition("1 s: ")[2]
        self.assertIn(reason.replace("alone", "OUTPUT_DIR"), PAGE)
        secret = self.work / "secret"
        secret.write_text("0" * 64)
        secret.chmod(0o600)
        third, = self.errors([*words, "1", "--secret-file", "secret"])
        reason = third.partition("1 s: ")[2]
        self.assertIn(reason.replace(port, "29500").replace("127.0.0.1", "192.168.1.100"), PAGE)

    def test_machines_that_differ(self):
        port = str(free_port())
        words = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port]
        errors = self.errors([*words, "--node-rank", "0"],
                             [*words, "--node-rank", "1", "learning_rate=5e-4"])
        host = socket.gethostname()
        shown = [re.sub(rf"node (\d) \({re.escape(host)}\)",
                        lambda found: f"node {found[1]} (node-{'ab'[int(found[1])]})", error)
                 for error in errors]
        self.assertEqual(shown[0], shown[1])
        self.assertIn(shown[0], PAGE)


if __name__ == "__main__":
    unittest.main()
