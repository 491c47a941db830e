# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Runs whose optimizer keeps fewer bytes: any stage gives the same bytes, a continued run is the same to
the byte, and what the plan counts lies on the disk."""
import json
import shutil
import unittest

from harness import Workspace, gpt2, llama, read_safetensors, relative, run_skein

STEPS = 8
FILES = ("model.safetensors", "optimizer.safetensors")
STAGES = ("ddp", "zero1", "zero2", "zero3")


def checkpoint(work, output, step=STEPS):
    return work / output / f"checkpoint-{step}"


def copy_until(work, source, target, step):
    shutil.rmtree(work / target, ignore_errors=True)
    shutil.copytree(work / source, work / target, symlinks=True)
    for path in (work / target).glob("checkpoint-*"):
        if int(path.name.split("-")[1]) > step:
            shutil.rmtree(path)
    (work / target / "model.safetensors").unlink()


def plan_of(work, *words):
    return json.loads(run_skein(["plan", "c.yaml", "output_dir=planned", *words, "--json"], work.folder).stdout)


class Case(unittest.TestCase):
    KEYS = {}

    def workspace(self, model=None, **keys):
        defaults = dict(num_blocks=20, global_batch_size=12, max_steps=STEPS, save_steps=4, weight_decay=0.1,
                        lr_scheduler_type="cosine", report_to="none")
        return Workspace(model or llama(), **(defaults | self.KEYS | keys))

    def assert_same_files(self, work, found, expected):
        for name in FILES:
            self.assertEqual((checkpoint(work, found) / name).read_bytes(),
                             (checkpoint(work, expected) / name).read_bytes(), f"{found}: {name}")

    def check_stages(self, **keys):
        with self.workspace(**keys) as work:
            for stage in STAGES:
                work.run(f"output_dir={stage}", f"distributed_strategy={stage}", ranks=2)
                self.assert_same_files(work, stage, "ddp")

    def check_continuation(self, model, *words, **keys):
        with self.workspace(model, save_steps=1, **keys) as work:
            work.run("output_dir=whole", *words, ranks=2)
            for step in (1, 5):
                copy_until(work, "whole", "cut", step)
                ended = work.run("output_dir=cut", *words, ranks=2)
                self.assertIn(f"at step {step} of {STEPS}", ended.stderr)
                self.assert_same_files(work, "cut", "whole")

    def check_moves(self):
        """Saved at one stage and world size, continued at another: the same batches, sums in other order."""
        moves = [("ddp", 1, "zero3", 3), ("zero3", 3, "ddp", 1), ("zero2", 2, "zero1", 3)]
        with self.workspace() as work:
            for stage, ranks, next_stage, next_ranks in moves:
                work.run("output_dir=whole", "--fresh", f"distributed_strategy={stage}", ranks=ranks)
                copy_until(work, "whole", "moved", 4)
                work.run("output_dir=moved", f"distributed_strategy={next_stage}", ranks=next_ranks)
                for a, b in zip(work.records("moved"), work.records("whole"), strict=True):
                    self.assertLess(relative(a["loss"], b["loss"]), 1e-3)

    def check_plan(self, per_element, **keys):
        """Bytes of states per trainable element, and those of a checkpoint's file."""
        with self.workspace(**keys) as work:
            plan = plan_of(work, "distributed_strategy=ddp")
            elements = plan["model"]["trainable"]
            states = plan["model"]["memory_per_rank"][0]["states"]
            # Parameters begin at multiples of 128 elements.
            self.assertGreaterEqual(states, per_element * elements)
            self.assertLess(states, per_element * elements * 1.2)
            work.run("output_dir=out")
            self.assertEqual(plan["disk"]["checkpoint_optimizer_bytes"],
                             (checkpoint(work, "out") / "optimizer.safetensors").stat().st_size)


class EightBitMoments(Case):
    KEYS = {"optim": "adamw_8bit"}

    def test_every_stage_gives_the_same_bytes(self):
        self.check_stages()
        self.check_stages(dtype="bfloat16")

    def test_a_continued_run_is_the_same(self):
        self.check_continuation(llama(), "distributed_strategy=zero3", dtype="bfloat16")
        self.check_continuation(gpt2(), "distributed_strategy=zero1", "per_device_train_batch_size=2")

    def test_other_stages_and_world_sizes_go_on(self):
        self.check_moves()

    def test_the_plan_counts_them(self):
        self.check_plan(2 + 8 / 128)
        self.check_plan(4 + 2 + 8 / 128, dtype="bfloat16")

    def test_a_checkpoint_has_bytes_and_scales(self):
        with self.workspace() as work:
            work.run("output_dir=out", ranks=2)
            states = read_safetensors(checkpoint(work, "out") / "optimizer.safetensors")
            name = "model.layers.0.mlp.gate_proj.weight"  # 88 x 32
            self.assertEqual({key.removeprefix(name + ".") for key in states if key.startswith(name)},
                             {"exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"})
            self.assertEqual(states[f"{name}.exp_avg"][:2], ("U8", [88, 32]))
            self.assertEqual(states[f"{name}.exp_avg_scale"][:2], ("F32", [22]))
            self.assertEqual(states["model.norm.weight.exp_avg_sq_scale"][:2], ("F32", [1]))

    def test_it_learns_what_fp32_moments_learn(self):
        with self.workspace(max_steps=60, num_blocks=8, global_batch_size=8, save_strategy="no") as work:
            work.run("output_dir=small", ranks=2)
            work.run("output_dir=wide", "optim=adamw_torch", ranks=2)
            small, wide = ([record["loss"] for record in work.records(run)] for run in ("small", "wide"))
            self.assertLess(wide[-1], wide[0] - 0.5)
            self.assertNotEqual(small[-1], wide[-1])
            self.assertLess(relative(small[-1], wide[-1]), 0.01)

    def test_adapters(self):
        with self.workspace(save_strategy="no") as work:
            work.run("output_dir=base")
            work.run("output_dir=lora", "train_from_scratch=false", "model_name_or_path=base", "finetuning_type=lora",
                     "save_strategy=steps", "dtype=bfloat16", ranks=2)
            states = read_safetensors(checkpoint(work, "lora") / "optimizer.safetensors")
            self.assertEqual({name.rsplit(".", 1)[1] for name in states},
                             {"exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"})

    def test_moments_of_another_kind_are_not_continued(self):
        with self.workspace() as work:
            work.run("output_dir=small", "max_steps=4")
            said = work.run("output_dir=small", "optim=adamw_torch", code=2).stderr
            self.assertIn("was saved with optim: adamw_8bit, this start has optim: adamw_torch", said)
            work.run("output_dir=wide", "max_steps=4", "optim=adamw_torch")
            said = work.run("output_dir=wide", "optim=paged_adamw_8bit", code=2).stderr
            self.assertIn("was saved with optim: adamw_torch, this start has optim: adamw_8bit", said)

    def test_what_saves_memory_is_announced(self):
        with self.workspace() as work:
            said = work.run("output_dir=out", "max_steps=1", "offload_optimizer=cpu", "gradient_checkpointing=true").stderr
            self.assertIn("memory: 100 % of the optimizer states in host memory, moments in 8 bits, "
                          "gradient_checkpointing", said)
            said = work.run("output_dir=plain", "max_steps=1", "optim=adamw_torch").stderr
            self.assertNotIn("memory: ", said)

    def test_float64_is_refused(self):
        with self.workspace() as work:
            said = work.run("output_dir=out", "dtype=float64", code=2).stderr
            self.assertIn("optim: adamw_8bit computes in float32, and dtype is float64", said)


class PureBf16(Case):
    KEYS = {"pure_bf16": True}

    def test_every_stage_gives_the_same_bytes(self):
        self.check_stages()
        self.check_stages(optim="adamw_8bit")

    def test_a_continued_run_is_the_same(self):
        self.check_continuation(llama(), "distributed_strategy=zero3")
        self.check_continuation(gpt2(), "distributed_strategy=zero1", "per_device_train_batch_size=2")
        self.check_continuation(llama(), "distributed_strategy=zero2", optim="adamw_8bit")

    def test_other_stages_and_world_sizes_go_on(self):
        self.check_moves()

    def test_eight_bytes_per_parameter(self):
        self.check_plan(4)
        self.check_plan(2 + 8 / 128, optim="adamw_8bit")
        with self.workspace() as work:
            # With accumulation as without.
            for words in ((), ("per_device_train_batch_size=2",)):
                plan = plan_of(work, "distributed_strategy=ddp", *words)
                memory = plan["model"]["memory_per_rank"][0]
                self.assertEqual(memory["weights"], memory["gradients"])
                self.assertEqual(memory["weights"] * 2, memory["states"])
            wide = plan_of(work, "distributed_strategy=ddp", "grad_accum_fp32=true")["model"]["memory_per_rank"][0]
            self.assertEqual(wide["gradients"], 2 * wide["weights"])

    def test_the_seed_alone_decides_what_is_rounded(self):
        with self.workspace(save_strategy="no") as work:
            for output, seed in (("a", 5), ("b", 5), ("c", 6)):
                work.run(f"output_dir={output}", f"seed={seed}", "data_seed=1")
            a, b, c = ((work / output / "model.safetensors").read_bytes() for output in "abc")
            self.assertEqual(a, b)
            self.assertNotEqual(a, c)

    def test_it_learns_what_a_master_learns(self):
        with self.workspace(max_steps=60, num_blocks=8, global_batch_size=8, save_strategy="no") as work:
            work.run("output_dir=pure", ranks=2)
            work.run("output_dir=master", "pure_bf16=false", "dtype=bfloat16", ranks=2)
            pure, master = ([record["loss"] for record in work.records(run)] for run in ("pure", "master"))
            self.assertLess(master[-1], master[0] - 0.5)
            self.assertLess(relative(pure[-1], master[-1]), 0.02)

    def test_everything_saved_is_bf16(self):
        with self.workspace() as work:
            work.run("output_dir=out", ranks=2)
            for name in FILES:
                tensors = read_safetensors(checkpoint(work, "out") / name)
                self.assertEqual({dtype for dtype, _, _ in tensors.values()}, {"BF16"})
            self.assertEqual({key.rsplit(".", 1)[1] for key in tensors}, {"exp_avg", "exp_avg_sq"})

    def test_adapters_stay_fp32(self):
        with self.workspace(save_strategy="no") as work:
            work.run("output_dir=base")
            words = ("output_dir=lora", "train_from_scratch=false", "model_name_or_path=base", "finetuning_type=lora",
                     "save_strategy=steps")
            work.run(*words, "max_steps=4", ranks=2)
            work.run(*words, ranks=2)
            states = read_safetensors(checkpoint(work, "lora") / "optimizer.safetensors")
            self.assertEqual({dtype for dtype, _, _ in states.values()}, {"F32"})

    def test_contradictions_are_refused(self):
        with self.workspace() as work:
            for words in (("dtype=float32",), ("fp16=true",)):
                said = work.run("output_dir=out", *words, code=2).stderr
                self.assertIn("'pure_bf16'", said)
                self.assertIn("trains in bfloat16 alone", said)

    def test_states_of_another_kind_are_not_continued(self):
        with self.workspace() as work:
            work.run("output_dir=pure", "max_steps=4")
            # Moments in 8 bits are the same with and without pure_bf16.
            work.run("output_dir=pure8", "max_steps=4", "optim=adamw_8bit")
            for dtype in ("bfloat16", "float32"):
                words = ("optim=adamw_8bit", "pure_bf16=false", f"dtype={dtype}")
                said = work.run("output_dir=pure8", *words, code=2).stderr
                self.assertIn("was saved with pure_bf16: true, this start has false", said)
            work.run("output_dir=wide8", "max_steps=4", "optim=adamw_8bit", "pure_bf16=false", "dtype=float32")
            said = work.run("output_dir=wide8", "optim=adamw_8bit", code=2).stderr
            self.assertIn("was saved with pure_bf16: false, this start has true", said)
            for dtype in ("bfloat16", "float32"):
                said = work.run("output_dir=pure", "pure_bf16=false", f"dtype={dtype}", code=2).stderr
                self.assertIn("was saved with pure_bf16: true, this start has false", said)
                work.run(f"output_dir={dtype}", "max_steps=4", "pure_bf16=false", f"dtype={dtype}")
                said = work.run(f"output_dir={dtype}", code=2).stderr
                self.assertIn("was saved with pure_bf16: false, this start has true", said)


if __name__ == "__main__":
    unittest.main()
