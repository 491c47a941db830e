# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Generation on one GPU: the CPU's tokens, for every family and every way to draw. Stages grpo, rloo and ppo: the CPU's numbers;
cut runs to the byte.

  SKEIN_BUILD=build/cuda tests/gpu/online_test.py
"""
import itertools
import json
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ranks"))

from asked import FULL, LORA, STAGES, Asked, learned  # noqa: E402
from harness import Workspace, llama, run_skein  # noqa: E402

SHAPE = {"vocab_size": 257, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
WINDOW = {"sliding_window": 24}
SCALE = {"head_dim": 32, "query_pre_attn_scalar": 24}


def family(name, **more):
    return SHAPE | {"model_type": name} | more


FAMILIES = {
    "llama": family("llama"),
    "mistral": family("mistral", **WINDOW),
    "qwen2": family("qwen2", **WINDOW, use_sliding_window=True, max_window_layers=1),
    "qwen3": family("qwen3", head_dim=64),
    "gemma2": family("gemma2", **WINDOW, **SCALE, attn_logit_softcapping=20.0, final_logit_softcapping=30.0),
    "gemma3": family("gemma3_text", **WINDOW, **SCALE, sliding_window_pattern=2, rope_local_base_freq=500.0),
    "phi3": family("phi3", partial_rotary_factor=0.5),
    "gpt2": {"model_type": "gpt2", "vocab_size": 257, "n_positions": 256, "n_embd": 128, "n_layer": 2, "n_head": 4},
}
PROMPTS = ("a", "b c", "abcdefgh " * 7, "hgfedcba" * 12)
DRAWS = {
    "plain": (),
    "cold": ("--temperature", "0.7", "--top-k", "40"),
    "nucleus": ("--top-p", "0.9", "--repetition-penalty", "1.2"),
    "least": ("--min-p", "0.05", "--num-return", "3"),
}


class Generation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace()
        for name, config in FAMILIES.items():
            cls.work.write_model(config, name)
            cls.work.run(f"model_name_or_path={name}", "max_steps=10", "learning_rate=1e-2", "save_strategy=no", "report_to=none",
                         f"output_dir=base-{name}")

    @classmethod
    def tearDownClass(cls):
        cls.work.__exit__()

    def tokens(self, name, device, dtype, *flags):
        prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
        ended = run_skein(["generate", f"base-{name}", *prompts, "--max-new-tokens", "32", "--device", device, "--dtype", dtype,
                           "--json", *flags], self.work.folder)
        return [json.loads(line)["tokens"] for line in ended.stdout.splitlines()]

    def test_greedy_tokens_are_those_of_the_cpu(self):
        for name in FAMILIES:
            with self.subTest(name):
                found = {(device, dtype): self.tokens(name, device, dtype, "--temperature", "0")
                         for device in ("cuda", "cpu") for dtype in ("float64", "float32")}
                self.assertEqual(found["cuda", "float64"], found["cpu", "float64"])
                parted = sum(a != b for a, b in zip(found["cuda", "float32"], found["cpu", "float32"], strict=True))
                self.assertLessEqual(parted, 1)  # where two tokens are equally likely but for rounding
                self.assertEqual(len(self.tokens(name, "cuda", "bfloat16", "--temperature", "0")), len(PROMPTS))

    def test_draws_are_those_of_the_cpu(self):
        for name, (draw, flags) in itertools.product(("llama", "gemma2"), DRAWS.items()):
            with self.subTest(name, draw=draw):
                self.assertEqual(*(self.tokens(name, device, "float64", *flags) for device in ("cuda", "cpu")))

    def test_neighbours_change_no_text(self):
        for name in ("llama", "mistral"):
            with self.subTest(name):
                self.assertEqual(*(self.tokens(name, "cuda", "float64", "--batch-size", size) for size in (1, 4)))


def without_numbers(completion):
    """What was said: texts, and not how likely or good they were to the last bit."""
    return {name: value for name, value in completion.items() if not isinstance(value, float)}


class AskedOnOneGpu(Asked):
    def __init__(self, stage, **keys):
        super().__init__(stage, model=llama(**SHAPE | {"vocab_size": 260}), **{
            "device": "cuda", "dtype": "bfloat16", "full_determinism": True, "per_device_train_batch_size": 4, "max_steps": 4,
            "save_steps": 2} | keys)


class Learning(unittest.TestCase):
    def test_numbers_are_those_of_the_cpu(self):
        for stage, words in itertools.product(STAGES, (FULL, LORA)):
            with self.subTest(stage=stage, words=words), AskedOnOneGpu(stage, dtype="float64") as work:
                for device in ("cuda", "cpu"):
                    work.run(f"output_dir={device}", f"device={device}", *words)
                self.assertEqual(*(list(map(without_numbers, work.said(device))) for device in ("cuda", "cpu")))
                for a, b in zip(work.logged("cuda"), work.logged("cpu"), strict=True):
                    mine, theirs = learned(a), learned(b)
                    for name in theirs.keys() - {"gpu_bytes_peak", "gpu_bytes"}:
                        # RoPE's angles are fp32, whose cosines differ in the last bit between CPU and GPU.
                        self.assertLess(abs(mine[name] - theirs[name]), 1e-5 * (1 + abs(theirs[name])), name)

    def test_a_cut_run_goes_on_to_the_byte(self):
        four_bits = (*LORA, "quantization_bit=4")
        sharded = ("distributed_strategy=zero3", "gradient_checkpointing=true")
        for stage, words in [*itertools.product(STAGES, (FULL, LORA)), ("grpo", four_bits), ("grpo", (*FULL, *sharded)),
                             ("ppo", (*FULL, *sharded))]:
            with self.subTest(stage=stage, words=words), AskedOnOneGpu(stage) as work:
                work.run("output_dir=whole", *words)
                for record in work.logged("whole"):
                    self.assertLess(record["sampling/sampling_logp_difference/mean"], 0.02)
                shutil.copytree(work / "whole", work / "cut", symlinks=True)
                shutil.rmtree(work / "cut/checkpoint-4")
                ended = work.run("output_dir=cut", *words)
                self.assertIn("continuing cut/checkpoint-2 at step 2", ended.stderr)
                for path in (work / "whole/checkpoint-4").glob("**/*.safetensors"):
                    name = path.relative_to(work / "whole")
                    self.assertEqual((work / "cut" / name).read_bytes(), path.read_bytes(), name)


if __name__ == "__main__":
    unittest.main()
