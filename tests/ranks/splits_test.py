# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same global batch gives the same losses, gradient norms and weights, however it is split."""
import array
import math
import unittest

from harness import Workspace, gpt2, llama, read_safetensors, relative, sample

STEPS = 30
GLOBAL_BATCH = 12
# (ranks, per device, accumulation, further words). The first is what the others are held to.
SPLITS = [
    (1, 12, 1, []),
    (1, 3, 4, []),
    (2, 6, 1, ["distributed_strategy=zero3"]),
    (2, 3, 2, ["distributed_strategy=zero1"]),
    (2, 1, 6, ["distributed_strategy=zero3", "gradient_checkpointing=offload"]),
    (3, 2, 2, ["distributed_strategy=zero2"]),
    (4, 3, 1, ["distributed_strategy=ddp"]),
    (4, 1, 3, ["distributed_strategy=zero2"]),
]
# Of losses and norms, and of weights. float64 tells mistakes from rounding.
TOLERANCES = {"float32": (1e-5, 1e-4), "float64": (1e-10, 1e-9)}


def read_weights(work):
    """Values by name, of the model that the last run wrote."""
    return {name: array.array({"F32": "f", "F64": "d"}[dtype], data)
            for name, (dtype, _, data) in read_safetensors(work / "out/model.safetensors").items()}


def norm(values):
    return math.sqrt(math.fsum(value * value for value in values))


class Splits(unittest.TestCase):
    def check(self, model, dtype, **keys):
        # 41 blocks: an epoch is three steps of 12 and one of 5, the last block of it short.
        with Workspace(model, num_blocks=41, max_steps=STEPS, dtype=dtype,
                       lr_scheduler_type="cosine", warmup_steps=3, weight_decay=0.1, **keys) as work:
            expected = self.train(work, SPLITS[0])
            weights = read_weights(work)
            self.assertEqual([record["step"] for record in expected], list(range(1, STEPS + 1)))
            seen = [record["num_input_tokens_seen"] for record in expected]
            self.assertLess(seen[3] - seen[2], GLOBAL_BATCH * 32 / 2, "no short step")
            self.assertLess(expected[-1]["loss"], 0.9 * expected[0]["loss"], "it learns nothing")
            for split in sample(SPLITS[1:], 3):
                with self.subTest(split=split):
                    numbers, of_weights = TOLERANCES[dtype]
                    self.compare(self.train(work, split), expected, numbers)
                    self.compare_weights(read_weights(work), weights, of_weights)

    def train(self, work, split):
        ranks, per_device, accumulation, words = split
        work.run(f"per_device_train_batch_size={per_device}",
                 f"gradient_accumulation_steps={accumulation}",
                 f"global_batch_size={GLOBAL_BATCH}", "output_dir=out", "--fresh", *words,
                 ranks=ranks)
        return work.records("out")

    def compare(self, found, expected, tolerance):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            for key in ("step", "epoch", "learning_rate", "num_input_tokens_seen"):
                self.assertEqual(a[key], b[key], key)
            for key in ("loss", "grad_norm"):
                self.assertLess(relative(a[key], b[key]), tolerance, f"{key} of step {a['step']}")

    def compare_weights(self, found, expected, tolerance):
        self.assertEqual(set(found), set(expected))
        norms = {name: norm(values) for name, values in expected.items()}
        least = 1e-3 * norm(norms.values())
        for name, values in expected.items():
            apart = norm(a - b for a, b in zip(found[name], values, strict=True))
            self.assertLess(apart / max(norms[name], least), tolerance, name)

    def test_llama_float32(self):
        self.check(llama(), "float32")

    def test_llama_float64(self):
        self.check(llama(), "float64")

    # Dropout is on: its masks belong to tokens, not to places in a batch.
    def test_gpt2_float32(self):
        self.check(gpt2(), "float32")

    def test_gpt2_float64(self):
        self.check(gpt2(), "float64")

    # So does noise on embeddings, and its size is that of the document, not of the row.
    def test_noise_and_smoothing(self):
        self.check(llama(), "float64", neftune_noise_alpha=0.5, label_smoothing_factor=0.05)


if __name__ == "__main__":
    unittest.main()
