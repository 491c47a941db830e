# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A run that was stopped, killed or moved to other ranks goes on as if nothing had happened."""
import itertools
import json
import os
import random
import shutil
import signal
import unittest

from harness import (Workspace, children, finish, gpt2, kill, llama, read_safetensors, relative,
                     run_skein, wait_until_gone)

FILES = ("model.safetensors", "optimizer.safetensors")
STAGES = ("ddp", "zero1", "zero2", "zero3")


def checkpoint(work, output, step):
    return work / output / f"checkpoint-{step}"


def copy_until(work, source, target, step):
    """The folder as it would be had the run died after committing that step; the log is ahead."""
    shutil.rmtree(work / target, ignore_errors=True)
    shutil.copytree(work / source, work / target, symlinks=True)
    for path in (work / target).glob("checkpoint-*"):
        if int(path.name.split("-")[1]) > step:
            shutil.rmtree(path)
    for name in ("model.safetensors", "config.json", "trainer_state.json"):
        (work / target / name).unlink(missing_ok=True)


def numbers(records):
    return [(r["step"], r["epoch"], r["loss"], r["grad_norm"], r["learning_rate"],
             r["num_input_tokens_seen"]) for r in records]


class Case(unittest.TestCase):
    def assert_same_run(self, work, found, expected, step):
        for name in FILES:
            self.assertEqual((checkpoint(work, found, step) / name).read_bytes(),
                             (checkpoint(work, expected, step) / name).read_bytes(), name)
        self.assertEqual((work / found / "model.safetensors").read_bytes(),
                         (work / expected / "model.safetensors").read_bytes())
        self.assertEqual(numbers(work.records(found)), numbers(work.records(expected)))

    def assert_tidy(self, work, output):
        self.assertEqual([p.name for p in (work / output).iterdir() if ".tmp-" in p.name], [])


class AfterAnyStep(Case):
    """Bytes of model and optimizer, for every step the run may have ended after."""
    STEPS = 7

    def check(self, model, steps, *words, **keys):
        # 20 blocks by 8: the third step of an epoch is short.
        with Workspace(model, num_blocks=20, global_batch_size=8, max_steps=self.STEPS, save_steps=1,
                       lr_scheduler_type="cosine", weight_decay=0.1, **keys) as work:
            work.run("output_dir=whole", *words, ranks=2)
            for step in steps:
                with self.subTest(step=step):
                    copy_until(work, "whole", "cut", step)
                    ended = work.run("output_dir=cut", *words, ranks=2)
                    self.assertIn(f"continuing cut/checkpoint-{step} at step {step}", ended.stderr)
                    self.assert_same_run(work, "cut", "whole", self.STEPS)
                    self.assert_tidy(work, "cut")

    def test_stage_3(self):
        self.check(llama(), range(1, self.STEPS), "distributed_strategy=zero3")

    def test_stage_0_with_dropout_and_accumulation(self):
        self.check(gpt2(), (1, 3, 6), "distributed_strategy=ddp", "per_device_train_batch_size=2")

    def test_bfloat16(self):
        self.check(llama(), (2, 5), "distributed_strategy=zero2", dtype="bfloat16")


class Interrupted(Case):
    """A signal in the middle, then the same command."""
    STEPS = 60

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(gpt2(n_embd=64), num_blocks=50, global_batch_size=8,
                             max_steps=cls.STEPS, save_steps=25, distributed_strategy="zero1")
        cls.work.run("output_dir=whole", ranks=2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def stop(self, output, sent):
        process = self.work.start(f"output_dir={output}", ranks=2)
        self.work.wait_for_step(process, output, 10)
        process.send_signal(sent)
        ended = finish(process, code=75)
        self.assertEqual(ended.stdout, "")
        self.assertIn("the same command continues", ended.stderr)
        step = len(self.work.records(output))
        self.assertLess(step, self.STEPS)
        self.assertTrue(checkpoint(self.work, output, step).exists(), "the last step is not saved")
        self.assertFalse((self.work / output / "model.safetensors").exists())
        return step

    def check_signal(self, output, sent):
        step = self.stop(output, sent)
        ended = self.work.run(f"output_dir={output}", ranks=2)
        self.assertIn(f"at step {step} of", ended.stderr)
        self.assert_same_run(self.work, output, "whole", self.STEPS)

    def test_sigterm(self):
        self.check_signal("terminated", signal.SIGTERM)

    def test_sigint(self):
        self.check_signal("interrupted", signal.SIGINT)

    def test_sigusr1(self):
        self.check_signal("warned", signal.SIGUSR1)

    def test_sigkill_of_all(self):
        process = self.work.start("output_dir=killed", ranks=2)
        self.work.wait_for_step(process, "killed", 30)
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        kill([process.pid, *ranks])
        finish(process)
        self.assertEqual(wait_until_gone(ranks), [])
        # What a kill in the middle of a save leaves.
        (self.work / "killed/checkpoint-50.tmp-0badcafe").mkdir()
        (self.work / "killed/checkpoint-50.tmp-0badcafe/model.safetensors").write_bytes(b"half")
        self.work.run("output_dir=killed", ranks=2)
        self.assert_same_run(self.work, "killed", "whole", self.STEPS)
        self.assert_tidy(self.work, "killed")


    def test_sigkill_before_the_first_checkpoint(self):
        process = self.work.start("output_dir=early", "save_steps=1000", ranks=2)
        self.work.wait_for_step(process, "early", 5)
        kill([process.pid, *children(process.pid)])
        finish(process)
        self.work.run("output_dir=early", ranks=2)
        self.assert_same_run(self.work, "early", "whole", self.STEPS)


class BestModel(Case):
    """Letters that are never trained on: the evaluation soon gets worse."""

    def test_it_outlives_a_limit_and_a_new_start(self):
        with Workspace(num_blocks=20, global_batch_size=8, save_steps=1, save_total_limit=2,
                       eval_strategy="steps", eval_steps=1, eval_file="other.txt",
                       load_best_model_at_end=True, output_dir="out") as work:
            (work / "other.txt").write_text("ZYXW" * 64)
            work.run("max_steps=3", ranks=2)
            work.run("max_steps=7", ranks=2)
            losses = {r["eval_loss"]: r["step"] for r in work.records("out") if "eval_loss" in r}
            best = losses[min(losses)]
            self.assertLess(best, 4)
            self.assertEqual((work / "out/model.safetensors").read_bytes(),
                             (checkpoint(work, "out", best) / "model.safetensors").read_bytes())

    def test_a_damaged_one_is_not_taken(self):
        with Workspace(num_blocks=20, global_batch_size=8, save_steps=1, eval_strategy="steps", eval_steps=1,
                       eval_file="other.txt", load_best_model_at_end=True, output_dir="out") as work:
            (work / "other.txt").write_text("ZYXW" * 64)
            work.run("max_steps=3", ranks=2)
            losses = {r["eval_loss"]: r["step"] for r in work.records("out") if "eval_loss" in r}
            damaged = checkpoint(work, "out", losses[min(losses)]) / "model.safetensors"
            data = bytearray(damaged.read_bytes())
            data[-1] ^= 1
            damaged.write_bytes(data)
            said = work.run("max_steps=7", ranks=2).stderr
            self.assertIn("taking the last model", said)
            self.assertEqual((work / "out/model.safetensors").read_bytes(),
                             (checkpoint(work, "out", 7) / "model.safetensors").read_bytes())


class EarlyStopping(Case):
    """Letters that are never trained on, again: the run ends as one that is done."""
    PATIENCE = 2
    STEPS = 40

    def workspace(self, **keys):
        work = Workspace(num_blocks=20, global_batch_size=8, max_steps=self.STEPS, save_steps=1,
                         eval_strategy="steps", eval_steps=1, eval_file="other.txt", learning_rate=3e-3,
                         early_stopping_patience=self.PATIENCE, **keys)
        (work / "other.txt").write_text("ZYXW" * 64)
        return work

    def evaluations(self, work, output):
        return {r["step"]: r["eval_loss"] for r in work.records(output) if "eval_loss" in r}

    def last_step(self, work, output):
        """Checked against the losses themselves."""
        found = self.evaluations(work, output)
        last, best = max(found), min(found, key=found.get)
        self.assertLess(last, self.STEPS)
        self.assertEqual(last, best + self.PATIENCE)
        return last

    def test_it_ends_as_finished_and_stays_so(self):
        with self.workspace() as work:
            said = work.run("output_dir=whole", ranks=2).stderr
            last = self.last_step(work, "whole")
            self.assertIn(f"ended early, after step {last} of {self.STEPS}", said)
            self.assertIn("early_stopping_patience 2", said)
            self.assertEqual((work / "whole/model.safetensors").read_bytes(),
                             (checkpoint(work, "whole", last) / "model.safetensors").read_bytes())
            before = (work / "whole/model.safetensors").stat().st_mtime_ns
            self.assertIn("nothing left to do", work.run("output_dir=whole", ranks=2).stderr)
            self.assertEqual((work / "whole/model.safetensors").stat().st_mtime_ns, before)
            planned = run_skein(["plan", "c.yaml", "output_dir=whole", "--nproc-per-node", "2"], work.folder)
            self.assertIn("nothing left to do", planned.stdout)
            # More steps alone are none to go on, and it says what is.
            for said in (work.run("output_dir=whole", "max_steps=80", ranks=2).stderr,
                         run_skein(["plan", "c.yaml", "output_dir=whole", "max_steps=80"], work.folder).stdout):
                self.assertIn(f"the run ended early, at step {last} of 80", said)
                self.assertIn("early_stopping_patience=none, goes on", said)
            # More patience is a reason to go on.
            work.run("output_dir=whole", "early_stopping_patience=4", ranks=2)
            self.assertEqual(max(self.evaluations(work, "whole")), last + 2)

    def test_a_new_start_counts_on(self):
        with self.workspace() as work:
            work.run("output_dir=whole", ranks=2)
            last = self.last_step(work, "whole")
            for step in (last - 2, last - 1, last):
                with self.subTest(step=step):
                    copy_until(work, "whole", "cut", step)
                    self.assertIn("ended early", work.run("output_dir=cut", ranks=2).stderr)
                    for name in FILES:
                        self.assertEqual((checkpoint(work, "cut", last) / name).read_bytes(),
                                         (checkpoint(work, "whole", last) / name).read_bytes(), name)
                    self.assertEqual((work / "cut/model.safetensors").read_bytes(),
                                     (work / "whole/model.safetensors").read_bytes())
                    self.assertEqual(self.evaluations(work, "cut"), self.evaluations(work, "whole"))

    def test_the_best_model_is_taken(self):
        with self.workspace(load_best_model_at_end=True, distributed_strategy="zero3") as work:
            work.run("output_dir=out", ranks=2)
            best = self.last_step(work, "out") - self.PATIENCE
            self.assertEqual((work / "out/model.safetensors").read_bytes(),
                             (checkpoint(work, "out", best) / "model.safetensors").read_bytes())

    def test_the_last_step_is_saved_between_saves(self):
        with self.workspace() as work:
            work.run("output_dir=out", "save_steps=1000", ranks=1)
            self.assertTrue(checkpoint(work, "out", self.last_step(work, "out")).exists())

    def test_without_checkpoints(self):
        with self.workspace() as work:
            words = ("output_dir=out", "save_strategy=no")
            work.run(*words, ranks=2)
            self.last_step(work, "out")
            self.assertEqual(list((work / "out").glob("checkpoint-*")), [])
            self.assertIn("nothing left to do", work.run(*words, ranks=2).stderr)

    def test_a_large_threshold(self):
        with self.workspace() as work:
            work.run("output_dir=out", "early_stopping_threshold=100", ranks=1)
            self.assertEqual(max(self.evaluations(work, "out")), 1 + self.PATIENCE)


class OtherRanks(Case):
    """Saved at one stage, world size and offload, continued at another. That all of them write and read the same bytes
    is shown on threads (skein/train/run_state_test.cpp); here whole runs move."""
    STEPS = 8
    SAVED = 4
    OFFLOADS = ("none", "cpu", "nvme")
    # What has gone wrong before, or would first.
    KNOWN = [(("ddp", 1, "none"), ("zero3", 2, "none")), (("zero3", 3, "none"), ("zero2", 2, "cpu")),
             (("zero3", 2, "nvme"), ("zero1", 3, "nvme"))]
    MOVES = 12

    def workspace(self, **keys):
        return Workspace(num_blocks=20, global_batch_size=12, max_steps=self.STEPS,
                         save_steps=self.SAVED, **keys)

    def moves(self):
        """Pairs of the matrix, drawn by SKEIN_SEED."""
        seed = os.environ.get("SKEIN_SEED", "0")
        holdings = list(itertools.product(STAGES, (1, 2, 3, 4), self.OFFLOADS))
        pairs = [pair for pair in itertools.permutations(holdings, 2) if pair not in self.KNOWN]
        drawn = random.Random(seed).sample(pairs, self.MOVES - len(self.KNOWN))
        print(f"{self.MOVES} of {len(pairs) + len(self.KNOWN)} moves, drawn by SKEIN_SEED={seed}")
        return self.KNOWN + drawn

    def words(self, holding):
        stage, ranks, offload = holding
        words = [f"distributed_strategy={stage}", f"offload_optimizer={offload}", "nvme_path=."]
        if stage == "zero3":
            words.append(f"offload_param={offload}")
        return words, ranks

    def test_losses(self):
        with self.workspace() as work:
            work.run("output_dir=alone", ranks=1)
            expected = work.records("alone")
            for number, (saved, resumed) in enumerate(self.moves()):
                with self.subTest(saved=saved, resumed=resumed):
                    words, ranks = self.words(saved)
                    work.run("output_dir=whole", "--fresh", *words, ranks=ranks)
                    copy_until(work, "whole", "moved", self.SAVED)
                    words, ranks = self.words(resumed)
                    work.run("output_dir=moved", *words, ranks=ranks)
                    self.compare(work.records("moved"), work.records("whole"))
                    self.compare(work.records("moved"), expected)
                    if number < 4:
                        self.assert_carried_over(work, words, ranks)

    def compare(self, found, expected):
        self.assertEqual(len(found), self.STEPS)
        for a, b in zip(found, expected):
            self.assertEqual((a["step"], a["num_input_tokens_seen"]), (b["step"], b["num_input_tokens_seen"]))
            self.assertLess(relative(a["loss"], b["loss"]), 1e-5)
            self.assertLess(relative(a["grad_norm"], b["grad_norm"]), 1e-5)

    def assert_carried_over(self, work, words, ranks):
        """Loads the checkpoint and saves it after a step that rounds to nothing: the bytes stay."""
        copy_until(work, "whole", "still", self.SAVED)
        work.run("output_dir=still", *words, f"max_steps={self.SAVED + 1}",
                 "learning_rate=0", "adam_beta1=0.999999999999", "adam_beta2=0.999999999999",
                 "max_grad_norm=1e-35", ranks=ranks)
        for name in FILES:
            before = read_safetensors(checkpoint(work, "still", self.SAVED) / name)
            after = read_safetensors(checkpoint(work, "still", self.SAVED + 1) / name)
            self.assertEqual(set(before), set(after))
            changed = [tensor for tensor in before if before[tensor] != after[tensor]]
            self.assertEqual(changed, [], name)

    def test_stages_give_the_same_bytes(self):
        with self.workspace() as work:
            work.run("output_dir=whole", "distributed_strategy=ddp", ranks=2)
            for stage in STAGES[1:]:
                with self.subTest(stage=stage):
                    copy_until(work, "whole", "moved", self.SAVED)
                    work.run("output_dir=moved", f"distributed_strategy={stage}", ranks=2)
                    self.assert_same_run(work, "moved", "whole", self.STEPS)


class BadCheckpoints(Case):
    STEPS = 6

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(num_blocks=20, global_batch_size=8, max_steps=cls.STEPS, save_steps=1)
        cls.work.run("output_dir=whole", ranks=2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def check(self, damage, *, named):
        copy_until(self.work, "whole", "damaged", 4)
        damage(checkpoint(self.work, "damaged", 4))
        ended = self.work.run("output_dir=damaged", ranks=2)
        warnings = [line for line in ended.stderr.splitlines() if "warning: " in line]
        self.assertEqual(len(warnings), 1, ended.stderr)
        self.assertIn("skipping damaged/checkpoint-4", warnings[0])
        self.assertIn(named, warnings[0])
        self.assertIn("continuing damaged/checkpoint-3 at step 3", ended.stderr)
        self.assert_same_run(self.work, "damaged", "whole", self.STEPS)

    def test_flipped_byte(self):
        def damage(folder):
            path = folder / "model.safetensors"
            data = bytearray(path.read_bytes())
            data[len(data) * 2 // 3] ^= 0x10
            path.write_bytes(data)
        self.check(damage, named="model.safetensors")

    def test_truncated_optimizer(self):
        def damage(folder):
            path = folder / "optimizer.safetensors"
            os.truncate(path, path.stat().st_size - 100)
        self.check(damage, named="optimizer.safetensors")

    def test_missing_manifest(self):
        self.check(lambda folder: (folder / "manifest.json").unlink(), named="manifest.json")


class NotFinite(Case):
    """A learning rate that ruins the weights in one step: from then on no gradient is finite."""
    RUIN = ("learning_rate=1e30", "max_grad_norm=0", "lr_scheduler_type=constant")

    def setUp(self):
        self.work = Workspace(num_blocks=20, global_batch_size=8, max_steps=6, save_steps=2, output_dir="out")
        self.addCleanup(shutil.rmtree, self.work.folder)

    def test_stop_names_step_and_samples(self):
        ended = self.work.run(*self.RUIN, ranks=2, code=2)
        self.assertRegex(ended.stderr, r"error: step 2: the loss and the gradient are not finite, first in .+ \(samples \d+")
        self.assertIn("nan_policy=skip", ended.stderr)

    def test_a_run_that_skips_goes_on_after_a_new_start(self):
        ended = self.work.run(*self.RUIN, "nan_policy=skip", ranks=2)
        self.assertIn("step 2: the loss and the gradient are not finite", ended.stderr)
        copy_until(self.work, "out", "again", 4)
        self.work.run(*self.RUIN, "nan_policy=skip", "output_dir=again", ranks=2)
        for name in FILES:
            self.assertEqual((checkpoint(self.work, "again", 6) / name).read_bytes(),
                             (checkpoint(self.work, "out", 6) / name).read_bytes())

    def test_rollback_restores_the_newest_checkpoint(self):
        ended = self.work.run("learning_rate=1e30", "max_grad_norm=0", "warmup_steps=3", "nan_policy=rollback",
                              "lr_scheduler_type=constant_with_warmup", "save_steps=1", ranks=2)
        self.assertIn("the loss and the gradient are not finite", ended.stderr)


class SameRun(Case):
    """What makes a start another run, and what does not."""
    STEPS = 4

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(num_blocks=20, global_batch_size=8, max_steps=cls.STEPS, save_steps=2,
                             output_dir="out")
        cls.work.run(ranks=2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def check_refused(self, *words, says):
        copy_until(self.work, "out", "other", 2)
        before = (checkpoint(self.work, "other", 2) / "manifest.json").read_bytes()
        ended = self.work.run("output_dir=other", *words, ranks=2, code=2)
        self.assertIn(says, ended.stderr)
        self.assertIn("other/checkpoint-2", ended.stderr)
        self.assertIn("--fresh", ended.stderr)
        self.assertEqual((checkpoint(self.work, "other", 2) / "manifest.json").read_bytes(), before)

    def test_other_global_batch(self):
        self.check_refused("global_batch_size=4", says="global batch size of 8, this start has 4")

    def test_other_data(self):
        self.work.write_text(20, name="other.txt", seed=2)
        self.check_refused("train_file=other.txt", says="training data")

    def test_other_seed_of_the_data(self):
        self.check_refused("data_seed=7", says="data seed of 42, this start has 7")

    def test_fresh_starts_over(self):
        copy_until(self.work, "out", "again", 2)
        ended = self.work.run("output_dir=again", "global_batch_size=4", "--fresh", ranks=2)
        self.assertNotIn("continuing", ended.stderr)
        self.assertFalse(checkpoint(self.work, "again", 3).exists())
        self.assertEqual([r["step"] for r in self.work.records("again")], [1, 2, 3, 4])
        state = json.loads((checkpoint(self.work, "again", 4) / "trainer_state.json").read_text())
        self.assertEqual(state["stateful_callbacks"]["skein"]["global_batch"], 4)

    def test_a_finished_run_stays_as_it_is(self):
        def contents():
            names = ["trainer_log.jsonl", *FILES[:1], f"checkpoint-{self.STEPS}/manifest.json"]
            return {name: (self.work / "out" / name).read_bytes() for name in names}
        before = contents()
        ended = self.work.run(ranks=2)
        self.assertIn(f"at step {self.STEPS} of {self.STEPS}", ended.stderr)
        self.assertNotIn("loss", ended.stderr)
        self.assertEqual(contents(), before)

    def test_a_final_model_that_was_not_written_is_written_now(self):
        shutil.copytree(self.work / "out", self.work / "ended", symlinks=True)
        for name in (FILES[0], "trainer_state.json"):  # killed between the last checkpoint and the export
            (self.work / "ended" / name).unlink()
        self.work.run("output_dir=ended", ranks=2)
        self.assertEqual((self.work / "ended" / FILES[0]).read_bytes(), (self.work / "out" / FILES[0]).read_bytes())
        self.assertIn("nothing left to do", self.work.run("output_dir=ended", ranks=2).stderr)


if __name__ == "__main__":
    unittest.main()
