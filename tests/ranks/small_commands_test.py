# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein plan` against what a run then does, and `skein checkpoint` on what it left."""
import ctypes
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, Workspace, finish, gpt2, llama, run_skein


class Plan(unittest.TestCase):
    def plan(self, work, *words, ranks=2):
        command = ["plan", *work.command(*words, ranks=ranks)[1:], "--json"]
        return json.loads(run_skein(command, work.folder).stdout)

    def test_memory_steps_and_disk_are_those_of_the_run(self):
        many = llama(num_hidden_layers=4, vocab_size=1000)
        for model, steps in ((llama(), 1), (gpt2(), 1), (many, 1), (many, 2)):
            with Workspace(model=model, num_train_epochs=1, global_batch_size=8,
                           gradient_accumulation_steps=steps) as work:
                for stage, strategy in enumerate(("ddp", "zero1", "zero2", "zero3")):
                    words = (f"distributed_strategy={strategy}", f"output_dir={strategy}")
                    plan = self.plan(work, *words)
                    self.assertFalse((work / strategy).exists())
                    work.run(*words, ranks=2)
                    records = work.records(strategy)
                    memory = plan["model"]["memory_per_rank"][stage]
                    self.assertTrue(memory["chosen"])
                    self.assertEqual(memory["flat_peak"], records[-1]["peak_memory_bytes"],
                                     (model, steps, strategy))
                    self.assertEqual(plan["steps"]["total"], records[-1]["step"])
                    saved = work / strategy / "latest"
                    for part in ("model", "optimizer"):
                        self.assertEqual(plan["disk"][f"checkpoint_{part}_bytes"],
                                         (saved / f"{part}.safetensors").stat().st_size)

    def test_offloaded_memory_is_that_of_the_run(self):
        cpu, shards = "offload_optimizer=cpu", "offload_param=cpu"
        cases = [("ddp", 1, [cpu]), ("zero1", 2, [cpu]), ("zero2", 2, [cpu]), ("zero3", 1, [cpu]),
                 ("zero3", 2, [cpu, shards]), ("zero2", 1, [cpu, "offload_ratio=0.4", "bf16=true"]),
                 ("zero2", 1, ["offload_optimizer=nvme", "nvme_path=.", "bf16=true"]),
                 ("zero3", 2, ["offload_param=nvme", "nvme_path=."]),
                 ("zero3", 1, [cpu, "offload_param=nvme", "nvme_path=.", "optim=adamw_8bit", "bf16=true"])]
        for strategy, steps, keys in cases:
            with Workspace(model=llama(num_hidden_layers=4, vocab_size=1000), max_steps=3,
                           global_batch_size=8, gradient_accumulation_steps=steps) as work:
                words = (f"distributed_strategy={strategy}", "output_dir=out", *keys)
                plan = self.plan(work, *words)
                work.run(*words, ranks=2)
                last = work.records("out")[-1]
                memory = next(m for m in plan["model"]["memory_per_rank"] if m["chosen"])
                self.assertEqual(memory["offloaded_host"], last["peak_host_bytes"], words)
                if "offload_ratio=0.4" not in words:  # gradients that stay and those on their way
                    self.assertEqual(memory["flat_peak"], last["peak_memory_bytes"], words)

    def test_it_counts_the_ranks_of_all_machines(self):
        with Workspace(global_batch_size=8, output_dir="out") as work:
            plan = self.plan(work, "--nnodes=2", "--node-rank=1", "--master-addr=192.0.2.1", ranks=2)
            self.assertEqual(plan["launch"]["ranks"], 4)
            self.assertIn("node 1 of 2 (--nnodes 2; --node-rank 1)", plan["launch"]["summary"])

    def test_it_says_what_is_missing(self):
        with Workspace() as work:
            shown = run_skein(["plan", "block_size=8", "device=cpu"], work.folder).stdout
            for words in ("give model_name_or_path", "give train_file", "give output_dir"):
                self.assertIn(words, shown)


def digest(data):
    """XXH3-128, as in manifests."""
    with tempfile.TemporaryDirectory() as folder:
        source = "#define XXH_INLINE_ALL\n#include <xxhash.h>\nXXH128_hash_t h(const void* d, size_t n) { return XXH3_128bits(d, n); }\n"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", f"{folder}/x.so", "-"], input=source, text=True, check=True)
        hash_of = ctypes.CDLL(f"{folder}/x.so").h
        hash_of.argtypes, hash_of.restype = (ctypes.c_char_p, ctypes.c_size_t), Low64High64
        result = hash_of(data, len(data))
    return f"{result.high64:016x}{result.low64:016x}"


class Low64High64(ctypes.Structure):
    _fields_ = (("low64", ctypes.c_uint64), ("high64", ctypes.c_uint64))


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=4, save_steps=2, global_batch_size=8, output_dir="out")
        cls.work.run(ranks=2)

    @classmethod
    def tearDownClass(cls):
        cls.work.__exit__()

    def ask(self, *words, code=0):
        return run_skein(["checkpoint", *words], self.work.folder, code)

    def test_list_and_verify(self):
        listed = json.loads(self.ask("list", "out", "--json").stdout)
        self.assertEqual([entry["step"] for entry in listed["checkpoints"]], [4, 2])
        self.assertEqual(listed["latest"], "checkpoint-4")
        self.assertEqual(listed["checkpoints"][0]["ranks"], 2)
        self.assertIn("checkpoint-4", self.ask("list", "out", "--full").stdout)
        one = json.loads(self.ask("list", "out/checkpoint-2", "--json").stdout)
        self.assertEqual([entry["step"] for entry in one["checkpoints"]], [2])
        self.assertEqual(self.ask("verify", "out").stdout.count(": whole"), 2)
        self.assertEqual(self.ask("verify", "out/latest").stdout.count(": whole"), 1)

    def test_a_run_may_remove_one_meanwhile(self):
        """As save_total_limit does. A name of 3,000 bytes, so that a pipe of 4,096 holds one line "reading …": the
        second waits until the test has read the first, and in between the older checkpoint goes."""
        deep = self.work.folder.joinpath(*(["x" * 250] * 12))
        deep.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, self.work / ("x" * 250))
        shutil.copytree(self.work / "out", deep / "out", symlinks=True)
        ours, theirs = os.pipe()
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
        process = subprocess.Popen([SKEIN, "checkpoint", "verify", deep / "out"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=theirs, text=True, env=ENVIRONMENT)
        os.close(theirs)
        while int.from_bytes(fcntl.ioctl(ours, termios.FIONREAD, bytes(4)), sys.byteorder) == 0:
            self.assertIsNone(process.poll())
            time.sleep(0.002)
        shutil.rmtree(deep / "out/checkpoint-2")
        with os.fdopen(ours) as said:
            told = said.read()
        shown = finish(process, 0).stdout
        self.assertEqual((shown.count(": whole"), shown.count(": damaged")), (1, 0))
        self.assertIn("checkpoint-2 was removed while it was read", told)

    def test_what_a_manifest_says_stands_on_one_line(self):
        copy = self.work / "forged"
        shutil.copytree(self.work / "out", copy, symlinks=True)
        self.addCleanup(shutil.rmtree, copy)
        path = copy / "checkpoint-4/manifest.json"
        text = re.sub(r'"saved_at": "[^"]*"', r'"saved_at": "now\\\\ncheckpoint-9 forged"', path.read_text())
        text = text.replace('"tier": "T1"', r'"tier": "\u001b[2JT1"').partition('  "digest"')[0]
        path.write_text(f'{text}  "digest": "{digest(text.encode())}"\n}}\n')
        shown = self.ask("list", "forged").stdout
        self.assertEqual(len(shown.splitlines()), 3)
        self.assertIn(r"now\ncheckpoint-9 forged", shown)
        self.assertNotIn("\x1b", shown)

    def test_a_folder_whose_name_is_no_text(self):
        name = os.fsencode(self.work.folder) + b"/b\xff"
        shutil.copytree(os.fsencode(self.work / "out"), name, symlinks=True)
        self.addCleanup(shutil.rmtree, name)
        for verb in ("list", "verify"):
            ended = subprocess.run([SKEIN, "checkpoint", verb, name, "--json"], env=ENVIRONMENT, capture_output=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(len(json.loads(ended.stdout)["checkpoints"]), 2)

    def test_mistakes(self):
        for words in (["list"], ["list", "nowhere"], ["list", "model"], ["verify", "model"], ["lsit", "out"],
                      ["list", "out", "--jsno"]):
            self.assertEqual(self.ask(*words, code=2).stdout, "")


class Output(unittest.TestCase):
    def test_what_cannot_be_written_is_an_error(self):
        """A script would take an empty file for the answer."""
        self.assertTrue(Path("/dev/full").is_char_device(), "something has replaced it")
        with Workspace(max_steps=2, global_batch_size=8, output_dir="out") as work:
            work.run(ranks=1)
            for words in ("config show c.yaml", "config schema", "checkpoint list out", "plan c.yaml", "--help",
                          "eval out --dataset text.txt --block-size 32 --device cpu --json",
                          "generate out --prompt ab --max-new-tokens 4 --device cpu"):
                with self.subTest(words), open("/dev/full", "w") as full:
                    ended = subprocess.run([SKEIN, *words.split()], cwd=work.folder, env=ENVIRONMENT, text=True,
                                           stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE)
                    self.assertEqual(ended.returncode, 4, ended.stderr)
                    self.assertIn("could not be written to stdout", ended.stderr)


class Damage(Checkpoints):
    def test_list_and_verify(self):
        weights = self.work / "out/checkpoint-4/model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        ended = self.ask("verify", "out", code=4)
        self.assertIn("model.safetensors, tensor ", ended.stdout)
        self.assertIn("1 of 2 checkpoints damaged", ended.stderr)
        self.assertEqual(json.loads(self.ask("list", "out", "--full", "--json").stdout)["latest"],
                         "checkpoint-2")
        weights.write_bytes(whole[:-1])
        self.assertIn("damaged: model.safetensors", self.ask("list", "out").stdout)


if __name__ == "__main__":
    unittest.main()
