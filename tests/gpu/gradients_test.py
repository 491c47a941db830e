# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Gradient features on one GPU: the rows of the CPU, for every form and projection; cut and continued.

  SKEIN_BUILD=build/cuda tests/gpu/gradients_test.py
"""
import array
import math
import os
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ranks"))

from harness import ChatWorkspace, finish, llama, read_safetensors, run_skein, start_skein  # noqa: E402

SHAPE = {"vocab_size": 260, "hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": 256, "head_dim": 32}
ROWS = 75  # more than two tiles of the kernel, and not a whole one


class Rows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = ChatWorkspace(llama(**SHAPE), num_rows=ROWS, device="cuda", dtype="float32", per_device_train_batch_size=4)
        cls.work.__enter__()
        cls.work.run("output_dir=base", "max_steps=2", "save_strategy=no")
        cls.work.run("output_dir=warm", "model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora",
                     "lora_rank=4", "max_steps=2", "save_steps=1")

    @classmethod
    def tearDownClass(cls):
        cls.work.__exit__(None, None, None)

    def words(self, output, device, *more, block_samples=37):
        return ["gradients", "collect", "--train_file", "chat.jsonl", "--template", "chatml", "--model", "warm/checkpoint-2",
                "--output_path", output, "--block_samples", block_samples, "--max_length", "128", f"device={device}", "dtype=float32",
                *more]

    def rows(self, output):
        run_skein(["gradients", "merge", output], self.work.folder)
        _, shape, data = read_safetensors(self.work / output / "gradients.safetensors")["rows"]
        values = array.array("f", data)
        return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]

    def collected(self, name, *more):
        found = []
        for device in ("cuda", "cpu"):
            run_skein(self.words(f"{name}-{device}", device, *more), self.work.folder)
            found.append(self.rows(f"{name}-{device}"))
        return found

    def test_rows_are_those_of_the_cpu(self):
        cases = {"sgd": ("--gradient_type", "sgd"), "adam": ("--gradient_type", "adam"),
                 "odd": ("--gradient_type", "sgd", "--gradient_projection_dimension", "333"),
                 "small_batches": ("--gradient_type", "sgd", "--batch_tokens", "200"),
                 "weights": ("--gradient_type", "sgd", "--parameters", "mlp.down_proj,norm"),
                 "factorised": ("--gradient_type", "sgd", "--projection", "factorised"),
                 "reps": ("--info_type", "reps"), "loss": ("--info_type", "loss")}
        for name, words in cases.items():
            with self.subTest(name):
                found, expected = self.collected(name, *words)
                self.assertEqual(len(expected), ROWS)
                for a, b in zip(found, expected):
                    difference = math.dist(a, b) / math.hypot(*b)
                    self.assertLess(difference, 1e-5)

    def test_a_killed_collection_goes_on_to_the_same_bytes(self):
        # One batch a sample: slow enough to be met in the middle.
        words = ("--batch_tokens", "1", "full_determinism=true")
        run_skein(self.words("whole", "cuda", *words, block_samples=5), self.work.folder)
        process = start_skein(self.words("cut", "cuda", *words, block_samples=5), self.work.folder)
        while not list((self.work / "cut").glob("block-*.safetensors")):
            time.sleep(0.01)
            self.assertIsNone(process.poll())
        os.kill(process.pid, signal.SIGTERM)
        finish(process, 75)
        run_skein(self.words("cut", "cuda", *words, block_samples=5), self.work.folder)
        self.assertEqual(self.rows("cut"), self.rows("whole"))


if __name__ == "__main__":
    unittest.main()
