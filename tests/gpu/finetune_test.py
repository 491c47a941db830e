# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Fine-tuning on one GPU as a user runs it: in bf16 on packed rows, cut and continued, stopped, merged, asked.

  SKEIN_BUILD=build/cuda tests/gpu/finetune_test.py
"""
import json
import os
import shutil
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ranks"))

from harness import ChatWorkspace, children, finish, llama, relative, run_skein  # noqa: E402

STEPS = 6
SHAPE = {"vocab_size": 260, "hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": 256, "head_dim": 32}
LORA = {"finetuning_type": "lora", "lora_rank": 4, "lora_target": "all", "lora_dropout": 0.1}
TUNED = {
    "full": {"neftune_noise_alpha": 5, "label_smoothing_factor": 0.1},
    "freeze": {"finetuning_type": "freeze", "freeze_trainable_layers": 1},
    "lora": LORA | {"loraplus_lr_ratio": 8},
    "four_bits": LORA | {"quantization_bit": 4},
    "dora": LORA | {"use_dora": True, "use_rslora": True, "additional_target": ["lm_head"]},
}


class OnOneGpu(ChatWorkspace):
    def __init__(self, model=None, **keys):
        super().__init__(llama(**SHAPE) | (model or {}), **{
            "device": "cuda", "packing": True, "max_steps": STEPS, "save_steps": 2, "global_batch_size": 4,
            "full_determinism": True, "learning_rate": 1e-2} | keys)

    def make_base(self):
        """The folder `base` gets the weights of a few steps, and fine-tuning begins there."""
        self.run("output_dir=base", "save_strategy=no", "stage=sft", "finetuning_type=full")
        self.keys |= {"model_name_or_path": "base", "train_from_scratch": False}

    def tune(self, **keys):
        self.write_recipe(self.keys | keys)


def losses(records):
    return [record["loss"] for record in records if "loss" in record]


class Training(unittest.TestCase):
    def test_a_cut_run_goes_on_to_the_byte(self):
        for model in ({}, {"model_type": "gemma3_text", "sliding_window": 32, "architectures": ["Gemma3ForCausalLM"]}):
            with OnOneGpu(model) as work:
                work.make_base()
                for name, keys in TUNED.items():
                    with self.subTest(model=model.get("model_type", "llama"), tuned=name):
                        work.tune(**keys)
                        work.run("output_dir=whole", "--fresh")
                        shutil.rmtree(work / "cut", ignore_errors=True)
                        shutil.copytree(work / "whole", work / "cut", symlinks=True)
                        shutil.rmtree(work / f"cut/checkpoint-{STEPS}")
                        ended = work.run("output_dir=cut")
                        self.assertIn("continuing cut/checkpoint-4 at step 4", ended.stderr)
                        for path in (work / f"whole/checkpoint-{STEPS}").glob("*.safetensors"):
                            self.assertEqual((work / f"cut/checkpoint-{STEPS}" / path.name).read_bytes(),
                                             path.read_bytes(), path.name)

    def test_losses_are_those_of_the_cpu(self):
        with OnOneGpu(dtype="float32") as work:
            work.make_base()
            for name, keys in TUNED.items():
                for packing in (True, False):
                    with self.subTest(tuned=name, packing=packing):
                        work.tune(**keys, packing=packing)
                        work.run("output_dir=gpu", "--fresh")
                        work.run("output_dir=cpu", "--fresh", "device=cpu")
                        found, expected = losses(work.records("gpu")), losses(work.records("cpu"))
                        self.assertEqual(len(expected), STEPS)
                        for a, b in zip(found, expected):
                            self.assertLess(relative(a, b), 2e-4)


class Afterwards(unittest.TestCase):
    def test_an_adapter_says_what_the_merged_model_says(self):
        with OnOneGpu(dtype="float32") as work:
            work.make_base()
            work.tune(**LORA)
            work.run("output_dir=out")
            run_skein(["merge", "out", "--out", "merged"], work.folder)
            ask = ["--prompt", "3 + 4", "--max-new-tokens", "24", "--temperature", "0", "--dtype", "float32"]
            texts = [run_skein(["generate", *model, *ask], work.folder).stdout
                     for model in (["base", "--adapter", "out"], ["merged"])]
            self.assertEqual(*texts)
            measure = ["--dataset", "chat.jsonl", "--template", "chatml", "--json", "--dtype", "float32"]
            found = [json.loads(run_skein(["eval", *model, *measure], work.folder).stdout)
                     for model in (["base", "--adapter", "out"], ["merged"])]
            self.assertLess(relative(found[0]["eval_loss"], found[1]["eval_loss"]), 1e-5)


class Stopping(unittest.TestCase):
    def test_a_stop_in_an_evaluation_saves_first(self):
        with OnOneGpu(max_steps=1000, eval_strategy="steps", eval_steps=3, eval_file="many.jsonl", save_steps=1000,
                      per_device_eval_batch_size=1) as work:
            work.write_chat(20000, "many.jsonl", seed=2)
            process = work.start("output_dir=out")
            work.wait_for_step(process, "out", 3)
            time.sleep(1)  # 20,000 batches take longer
            begin = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            ended = finish(process, 75)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertTrue((work / "out/checkpoint-3").is_dir(), ended.stderr)

    def test_ctrl_z_and_fg(self):
        with OnOneGpu(max_steps=3000, save_steps=3000) as work:
            work.run("output_dir=whole", "max_steps=40", "save_steps=20")
            process = work.start("output_dir=out", "max_steps=40", "save_steps=20")
            work.wait_for_step(process, "out", 5)
            ranks = children(process.pid)
            os.kill(process.pid, signal.SIGTSTP)
            time.sleep(5)
            os.kill(process.pid, signal.SIGCONT)
            finish(process, 0)
            self.assertEqual(len(ranks), 1)
            self.assertEqual((work / "out/model.safetensors").read_bytes(), (work / "whole/model.safetensors").read_bytes())


class Profile(unittest.TestCase):
    def test_a_trace_has_the_gpus_clock(self):
        with OnOneGpu(dtype="float16") as work:
            ended = work.run("output_dir=out", "profile_steps=3-4")
            self.assertIn("phase (device)", ended.stderr)
            events = json.loads((work / "out/trace-3-4.rank0.json").read_text())["traceEvents"]
            [row] = [event["tid"] for event in events if event["ph"] == "M" and event["args"]["name"] == "device"]
            spans = {event["name"]: event for event in events if event["ph"] == "X" and event["tid"] == row}
            self.assertLessEqual({"update 3", "update 4", "forward", "backward", "optimizer", "step"}, set(spans))
            self.assertGreater(spans["backward"]["dur"], 0)
            self.assertTrue(all("loss_scale" in record for record in work.records("out") if "loss" in record))


if __name__ == "__main__":
    unittest.main()
