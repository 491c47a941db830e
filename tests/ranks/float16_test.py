# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Runs in float16: the loss scale finds its place, schedules count updates that were made, and a run that
is continued is the same to the byte."""
import json
import math
import re
import shutil
import struct
import unittest

from harness import Workspace, gpt2, llama, run_skein

STEPS = 12
FILES = ("model.safetensors", "optimizer.safetensors")


def losses(records):
    return [record["loss"] for record in records]


def was_skipped(record):
    return record["grad_norm"] is None or not math.isfinite(record["grad_norm"])


class Float16(unittest.TestCase):
    def workspace(self, model=None, **keys):
        defaults = dict(num_blocks=20, global_batch_size=8, max_steps=STEPS, dtype="float16", report_to="none")
        return Workspace(model or llama(), **(defaults | keys))

    def test_the_scale_falls_until_gradients_fit_and_schedules_wait(self):
        with self.workspace(initial_scale_power=24, lr_scheduler_type="linear") as work:
            ended = work.run("output_dir=out", ranks=2)
            records = work.records("out")
            skipped = [was_skipped(record) for record in records]
            self.assertGreater(sum(skipped), 2)
            self.assertLess(sum(skipped), STEPS - 2)
            scale, updates = 2.0 ** 24, 0
            for record, left_out in zip(records, skipped):
                self.assertEqual(record["loss_scale"], scale)
                self.assertAlmostEqual(record["learning_rate"], 1e-3 * (STEPS - updates) / STEPS, places=12)
                scale, updates = (scale / 2, updates) if left_out else (scale, updates + 1)
            self.assertIn("step 1: the gradient overflowed float16; the update was left out, the loss scale "
                          f"falls from {2 ** 24} to {2 ** 23}", ended.stderr)
            self.assertEqual(ended.stderr.count("overflowed float16"), sum(skipped), "one line a step, not a rank")

    def test_it_learns_what_float32_learns(self):
        with self.workspace(max_steps=40, num_blocks=8) as work:
            work.run("output_dir=half", ranks=2)
            work.run("output_dir=single", "dtype=float32", ranks=2)
            half, single = losses(work.records("half")), losses(work.records("single"))
            self.assertLess(single[-1], single[0] - 0.5)
            self.assertLess(abs(half[-1] - single[-1]) / single[-1], 0.01)

    def test_every_stage_gives_the_same_bytes(self):
        with self.workspace(initial_scale_power=21) as work:
            for stage in ("ddp", "zero1", "zero2", "zero3"):
                work.run(f"output_dir={stage}", f"distributed_strategy={stage}", ranks=2)
                self.assertEqual((work / stage / "model.safetensors").read_bytes(),
                                 (work / "ddp/model.safetensors").read_bytes(), stage)

    def check_continuation(self, work, *words):
        work.run("output_dir=whole", *words, ranks=2)
        self.assertGreater(sum(map(was_skipped, work.records("whole"))), 0)
        for step in (2, 5, 9):
            with self.subTest(step=step):
                shutil.rmtree(work / "cut", ignore_errors=True)
                shutil.copytree(work / "whole", work / "cut", symlinks=True)
                for path in (work / "cut").glob("checkpoint-*"):
                    if int(path.name.split("-")[1]) > step:
                        shutil.rmtree(path)
                (work / "cut/model.safetensors").unlink()
                ended = work.run("output_dir=cut", *words, ranks=2)
                self.assertIn(f"at step {step} of {STEPS}", ended.stderr)
                for name in FILES:
                    self.assertEqual((work / f"cut/checkpoint-{STEPS}/{name}").read_bytes(),
                                     (work / f"whole/checkpoint-{STEPS}/{name}").read_bytes(), name)
                states = [json.loads((work / f"{run}/checkpoint-{STEPS}/trainer_state.json").read_text())
                          for run in ("cut", "whole")]
                scales = [state["stateful_callbacks"]["skein"]["loss_scale"] for state in states]
                self.assertEqual(*scales)

    def test_a_continued_run_has_the_scale_of_the_undisturbed_one(self):
        with self.workspace(gpt2(), save_steps=1, initial_scale_power=20, loss_scale_window=3,
                            lr_scheduler_type="cosine") as work:
            self.check_continuation(work, "distributed_strategy=zero2")

    def test_hysteresis_is_continued_too(self):
        with self.workspace(save_steps=1, initial_scale_power=20, loss_scale_window=3, loss_scaler="deepspeed",
                            hysteresis=2) as work:
            self.check_continuation(work)

    def test_the_floor_ends_the_run_with_advice(self):
        with self.workspace(initial_scale_power=32, loss_scaler="deepspeed", hysteresis=1,
                            min_loss_scale=2 ** 31) as work:
            ended = work.run("output_dir=out", ranks=2, code=2)
            self.assertIn("still overflows at a loss scale of", ended.stderr)
            self.assertIn("The same command with bf16=true goes on", ended.stderr)
            self.assertRegex(ended.stderr, r"It overflowed first in .+ \(samples \d+")

    def test_a_run_without_an_update_has_no_result(self):
        # Shorter than the way down to a scale that fits.
        with self.workspace(initial_scale_power=40, max_steps=4) as work:
            ended = work.run("output_dir=out", ranks=2, code=2)
            self.assertIn("all 4 updates were left out", ended.stderr)
            self.assertIn("at last at a loss scale of", ended.stderr)
            self.assertFalse((work / "out/model.safetensors").exists())
            again = work.run("output_dir=out", ranks=2, code=2)
            self.assertIn("all 4 updates were left out", again.stderr)

    def scaled_model(self, work, name, factor):
        """A folder whose final norm counts `factor` times, in float32."""
        work.run("output_dir=plain", "dtype=float32", "max_steps=1", "save_strategy=no")
        shutil.copytree(work / "plain", work / name)
        path = work / name / "model.safetensors"
        data = bytearray(path.read_bytes())
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        begin, end = (8 + length + offset for offset in header["model.norm.weight"]["data_offsets"])
        values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        data[begin:end] = struct.pack(f"<{len(values)}f", *(factor * value for value in values))
        path.write_bytes(data)

    def test_values_that_float16_lacks_are_refused_by_name(self):
        with self.workspace(llama()) as work:
            self.scaled_model(work, "large", 1e5)
            ended = work.run("output_dir=out", "model_name_or_path=large", "train_from_scratch=false", ranks=2, code=2)
            self.assertIn("'model.norm.weight' holds values beyond 65,504, where float16 ends", ended.stderr)
            work.run("output_dir=wide", "model_name_or_path=large", "train_from_scratch=false", "bf16=true", "max_steps=1")

    def test_a_loss_that_is_not_finite_is_for_nan_policy(self):
        with self.workspace(llama()) as work:
            self.scaled_model(work, "hot", 6e4)  # fits, but no logit does
            words = ("model_name_or_path=hot", "train_from_scratch=false")
            ended = work.run("output_dir=stop", *words, ranks=2, code=2)
            self.assertRegex(ended.stderr, r"step 1: the loss and the gradient are not finite, first in .+ \(samples \d+")
            self.assertNotIn("the loss scale falls", ended.stderr)
            ended = work.run("output_dir=skip", *words, "nan_policy=skip", ranks=2, code=2)
            steps = re.findall(r"step (\d+): the loss and the gradient are not finite", ended.stderr)
            self.assertEqual(set(map(int, steps)), set(range(1, STEPS + 1)))
            self.assertIn(f"all {STEPS} updates were left out", ended.stderr)
            state = json.loads((work / f"skip/checkpoint-{STEPS}/trainer_state.json").read_text())
            scale = state["stateful_callbacks"]["skein"]["loss_scale"]
            self.assertEqual((scale["scale"], scale["num_skipped"]), (2 ** 16, STEPS))

    def test_an_overflow_leaves_its_finite_loss_in_the_record(self):
        with self.workspace(initial_scale_power=24) as work:
            ended = work.run("output_dir=out", "disable_tqdm=true", ranks=2)
            records = work.records("out")
            self.assertGreater(sum(map(was_skipped, records)), 0)
            self.assertTrue(all(math.isfinite(loss) for loss in losses(records)))
            self.assertIn("skipped", ended.stderr)
            self.assertNotRegex(ended.stderr, r"[^\w]-?nan\b")

    def test_changed_keys_of_the_scale_count(self):
        with self.workspace(save_steps=4, initial_scale_power=12, max_steps=4) as work:
            work.run("output_dir=first")
            for words, scale in ((("loss_scale=512",), 512), (("initial_scale_power=8",), 256),
                                 (("loss_scaler=deepspeed",), 2 ** 12)):
                with self.subTest(words):
                    shutil.rmtree(work / "cut", ignore_errors=True)
                    shutil.copytree(work / "first", work / "cut", symlinks=True)
                    work.run("output_dir=cut", "max_steps=6", *words)
                    self.assertEqual([record["loss_scale"] for record in work.records("cut")][4:], [scale] * 2)

    def test_bf16_goes_on_where_float16_ended(self):
        with self.workspace(save_steps=6, initial_scale_power=12, num_blocks=8) as work:
            work.run("output_dir=out", "max_steps=6", ranks=2)
            ended = work.run("output_dir=out", "bf16=true", ranks=2)
            self.assertIn(f"at step 6 of {STEPS}", ended.stderr)
            self.assertTrue(all(math.isfinite(loss) for loss in losses(work.records("out"))))

    def test_a_fixed_scale_leaves_overflows_to_nan_policy(self):
        with self.workspace(loss_scale=2 ** 30) as work:
            said = work.run("output_dir=out", code=2).stderr
            self.assertIn("the gradient is not finite", said)
            self.assertIn("The loss scale is fixed at 1.07374e+09: give loss_scale=dynamic, or a lower one", said)
            self.assertNotIn("max_grad_norm", said)
            work.run("output_dir=low", "loss_scale=1024")
            self.assertEqual({record["loss_scale"] for record in work.records("low")}, {1024})

    def test_adapters_dropout_and_recompute(self):
        with self.workspace(dtype="float32", save_strategy="no") as work:
            work.run("output_dir=base")
            work.run("output_dir=lora", "train_from_scratch=false", "model_name_or_path=base", "fp16=true",
                     "finetuning_type=lora", "lora_dropout=0.1", "neftune_noise_alpha=5", "gradient_checkpointing=true",
                     "per_device_train_batch_size=2", ranks=2)
            self.assertTrue((work / "lora/adapter_model.safetensors").exists())

    def test_a_model_is_asked_in_float16(self):
        with self.workspace(dtype="float32", save_strategy="no") as work:
            work.run("output_dir=out")
            loss = {}
            for dtype in ("float16", "float32"):
                ended = run_skein(["eval", "out", "--dataset", "text.txt", "--dtype", dtype, "--json"], work.folder)
                loss[dtype] = json.loads(ended.stdout)["eval_loss"]
            self.assertNotEqual(loss["float16"], loss["float32"])
            self.assertAlmostEqual(loss["float16"], loss["float32"], delta=0.01)
            run_skein(["generate", "out", "--prompt", "ab", "--max-new-tokens", "3", "--dtype", "fp16"], work.folder)


if __name__ == "__main__":
    unittest.main()
