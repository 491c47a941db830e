# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Stages rm, dpo and kto on one GPU: the losses and numbers of the CPU; cut runs, and references, to the byte.

  SKEIN_BUILD=build/cuda tests/gpu/preference_test.py
"""
import itertools
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ranks"))

from harness import llama  # noqa: E402
from judged import LORA, Judged, numbers_of  # noqa: E402

STAGES = ("rm", "dpo", "kto")
SHAPE = {"vocab_size": 260, "hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": 256, "head_dim": 32}


class JudgedOnOneGpu(Judged):
    def __init__(self, stage, **keys):
        super().__init__(stage, model=llama(**SHAPE), **{"device": "cuda", "dtype": "bfloat16", "full_determinism": True} | keys)


class OnOneGpu(unittest.TestCase):
    def test_losses_and_numbers_are_those_of_the_cpu(self):
        for stage, words in itertools.product(STAGES, ((), LORA)):
            with self.subTest(stage=stage, words=words), JudgedOnOneGpu(stage, dtype="float32") as work:
                for device in ("cuda", "cpu"):
                    work.run(f"output_dir={device}", f"device={device}", *words)
                for a, b in zip(work.logged("cuda"), work.logged("cpu"), strict=True):
                    mine, theirs = numbers_of(a), numbers_of(b)
                    for name in theirs.keys() - {"gpu_bytes_peak", "gpu_bytes"}:
                        # The accuracies count pairs: one that is even may fall either way.
                        if "accurac" not in name:
                            self.assertLess(abs(mine[name] - theirs[name]), 1e-4 + 1e-3 * abs(theirs[name]), name)

    def test_a_cut_run_goes_on_to_the_byte(self):
        four_bits = (*LORA, "quantization_bit=4")
        sharded = ("distributed_strategy=zero3", "gradient_checkpointing=true")
        for stage, words in [*itertools.product(STAGES, ((), LORA)), ("dpo", four_bits), ("dpo", sharded),
                             ("dpo", ("distributed_strategy=zero2", "offload_optimizer=cpu")), ("kto", (*LORA, *sharded))]:
            with self.subTest(stage=stage, words=words), JudgedOnOneGpu(stage, save_steps=2) as work:
                work.run("output_dir=whole", *words)
                shutil.copytree(work / "whole", work / "cut", symlinks=True)
                shutil.rmtree(work / "cut/checkpoint-4")
                ended = work.run("output_dir=cut", *words)
                self.assertIn("continuing cut/checkpoint-2 at step 2", ended.stderr)
                for path in (work / "whole/checkpoint-4").glob("*.safetensors"):
                    self.assertEqual((work / "cut/checkpoint-4" / path.name).read_bytes(), path.read_bytes(), path.name)

    def test_what_is_kept_of_a_reference_is_what_is_asked(self):
        for stage, words in itertools.product(("dpo", "kto"), ((), LORA)):
            with self.subTest(stage=stage, words=words), JudgedOnOneGpu(stage) as work:
                work.run("output_dir=live", *words)
                work.run("output_dir=kept", *words, "precompute_ref_log_probs=true", "data_cache_dir=cache")
                for a, b in zip(work.logged("kept"), work.logged("live"), strict=True):
                    # In bf16 what a look gives depends on the rows of its batch, which are others.
                    self.assertLess(abs(a["loss"] - b["loss"]), 2e-2)


if __name__ == "__main__":
    unittest.main()
