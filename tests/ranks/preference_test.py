# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Stages rm, dpo and kto, end to end: what every split learns, runs that are cut, references, and what is refused."""
import itertools
import json
import shutil
import unittest

from harness import ChatWorkspace, children, finish, kill, llama, read_safetensors, relative, run_skein, sample, write_safetensors
from judged import LORA, Judged, numbers_of

STAGES = ("rm", "dpo", "kto")


class Splits(unittest.TestCase):
    def test_every_split_has_the_same_losses_and_numbers(self):
        for stage in STAGES:
            with Judged(stage) as work:
                work.run("output_dir=one", "per_device_train_batch_size=4")
                expected = work.logged("one")
                self.assertEqual(len(expected), 4)
                self.assertLess(expected[-1]["loss"], expected[0]["loss"])
                cases = itertools.product((1, 2), (1, 2), ("ddp", "zero2", "zero3"))
                for ranks, rows, strategy in sample(list(cases)[1:], 2):
                    with self.subTest(stage=stage, ranks=ranks, rows=rows, strategy=strategy):
                        work.run("output_dir=other", "--fresh", f"per_device_train_batch_size={rows}",
                                 f"distributed_strategy={strategy}", ranks=ranks)
                        for a, b in zip(work.logged("other"), expected, strict=True):
                            mine, theirs = numbers_of(a), numbers_of(b)
                            self.assertEqual(mine.keys(), theirs.keys())
                            for name, value in theirs.items():
                                self.assertLess(abs(mine[name] - value), 1e-9 + 1e-9 * abs(value), name)

    def test_shared_prompts_change_no_number(self):
        for stage, words in sample(list(itertools.product(("rm", "dpo"), ((), LORA, ("packing=true",)))), 3):
            with self.subTest(stage=stage, words=words), Judged(stage, eval_strategy="steps", eval_steps=2, val_size=3) as work:
                for shares in ("true", "false"):
                    ended = work.run(f"output_dir={shares}", f"share_prompts={shares}", *words, ranks=2)
                    self.assertNotIn("share_prompts", ended.stderr)
                records = work.records("true")
                self.assertEqual(sum("eval_loss" in record for record in records), 2)
                for a, b in zip(records, work.records("false"), strict=True):
                    mine, theirs = numbers_of(a), numbers_of(b)
                    self.assertEqual(mine.keys(), theirs.keys())
                    self.assertEqual(a.get("num_input_tokens_seen"), b.get("num_input_tokens_seen"))
                    for name, value in theirs.items():
                        # At the first step both rewards of a pair are 0 but for rounding.
                        if "accura" not in name and "_per_second" not in name and "runtime" not in name:
                            self.assertLess(abs(mine[name] - value), 1e-9 + 1e-9 * abs(value), name)

    def test_prompts_are_not_shared_where_something_draws(self):
        with Judged("dpo", max_steps=2) as work:
            for words in ((*LORA, "lora_dropout=0.1"), ("neftune_noise_alpha=5",)):
                key = words[-1].split("=")[0]
                ended = work.run("output_dir=drawn", "--fresh", *words)
                self.assertIn(f"share_prompts is off, and prompts are computed for each answer: {key} is", ended.stderr)
                shared = work.logged("drawn")
                work.run("output_dir=drawn", "--fresh", *words, "share_prompts=false")
                self.assertEqual([record["loss"] for record in shared], [record["loss"] for record in work.logged("drawn")])

    def test_stages_are_bit_equal(self):
        for stage in STAGES:
            with Judged(stage) as work:
                weights = []
                for strategy in ("ddp", "zero1", "zero2", "zero3"):
                    work.run(f"output_dir={strategy}", "per_device_train_batch_size=2", "dtype=float32",
                             f"distributed_strategy={strategy}", ranks=2)
                    weights.append((work / strategy / "model.safetensors").read_bytes())
                self.assertEqual(len(set(weights)), 1, stage)

    def test_offload_changes_nothing(self):
        with Judged("dpo") as work:
            for name, words in (("none", ()), ("cpu", ("offload_optimizer=cpu",))):
                work.run(f"output_dir={name}", "distributed_strategy=zero2", "dtype=float32", *words, ranks=2)
            self.assertEqual((work / "none/model.safetensors").read_bytes(), (work / "cpu/model.safetensors").read_bytes())

    def test_verify_strategy_takes_pairs(self):
        with Judged("dpo", dtype="float32") as work:
            report = json.loads(run_skein(["verify-strategy", "c.yaml", "--steps", "2", "--strategies", "ddp,zero3",
                                           "--nproc-per-node", "2", "--json", *LORA], work.folder).stdout)
            self.assertTrue(report)


class Continued(unittest.TestCase):
    def test_killed_runs_go_on_to_the_byte(self):
        for stage in STAGES:
            for words in sample([(), LORA], 1):
                with self.subTest(stage=stage, words=words), Judged(stage, save_steps=2, max_steps=30) as work:
                    words = (*words, "distributed_strategy=zero3")
                    work.run("output_dir=whole", *words, ranks=2)
                    process = work.start("output_dir=killed", *words, ranks=2)
                    work.wait_for_step(process, "killed", 5)
                    kill(children(process.pid))
                    process.kill()
                    finish(process)
                    work.run("output_dir=killed", *words, ranks=2)
                    name = "adapter_model.safetensors" if LORA[0] in words else "model.safetensors"
                    for file in (name, "checkpoint-30/optimizer.safetensors"):
                        self.assertEqual((work / "killed" / file).read_bytes(), (work / "whole" / file).read_bytes())

    def test_another_stage_is_refused(self):
        with Judged("dpo", save_steps=2, max_steps=2) as work:
            words = ("train_from_scratch=false", "model_name_or_path=base")
            work.run("output_dir=out", *words)
            for command in ("train", "plan"):
                ended = run_skein([command, "c.yaml", "stage=rm", "output_dir=out", "max_steps=4", *words], work.folder, 2)
                self.assertIn("is of a run of stage: dpo, this start has stage: rm", ended.stderr)
            # Without checkpoints the final model of another stage is no end of this one.
            shutil.rmtree(work / "out/checkpoint-2")
            work.run("output_dir=out", "stage=rm", *words)
            self.assertIn("accuracy", work.records("out")[-1])

    def test_another_loss_begins_the_search_for_the_best_anew(self):
        with Judged("dpo", save_steps=2, max_steps=2, val_size=3, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True,
                    early_stopping_patience=2) as work:
            words = ("train_from_scratch=false", "model_name_or_path=base")
            work.run("output_dir=out", *words)
            # A loss of about 25, where the one before has 0.7.
            ended = work.run("output_dir=out", "pref_loss=ipo", "max_steps=8", *words)
            self.assertIn("evaluations up to step 2 are not compared with those to come", ended.stderr)
            state = json.loads((work / "out/trainer_state.json").read_text())
            self.assertGreater(state["best_global_step"], 2)
            self.assertEqual(state["global_step"], 8)

    def test_a_reference_that_is_no_model(self):
        with Judged("dpo") as work:
            shutil.copytree(work / "base", work / "broken")
            tensors = read_safetensors(work / "broken/model.safetensors")
            dtype, shape, values = tensors["model.norm.weight"]
            tensors["model.norm.weight"] = (dtype, shape, b"\xff" * len(values))  # not a number
            write_safetensors(work / "broken/model.safetensors", tensors)
            words = ("train_from_scratch=false", "model_name_or_path=base", "ref_model=broken", "data_cache_dir=cache")
            ended = work.run("output_dir=out", "precompute_ref_log_probs=true", *words, ranks=2, code=4)
            self.assertIn("the reference broken gives no finite number for sample", ended.stderr)
            self.assertFalse(list((work / "cache").glob("*.reference")))

    def test_another_reference_is_refused(self):
        with Judged("dpo", save_steps=2, max_steps=4) as work:
            words = ("train_from_scratch=false", "model_name_or_path=base")
            work.run("output_dir=out", *words)
            shutil.copytree(work / "base", work / "other")
            work.run("output_dir=made", "stage=sft", "train_file=chat.jsonl", "max_steps=2", "dtype=float32", *words)
            ended = work.run("output_dir=out", *words, "ref_model=made", "max_steps=6", code=2)
            self.assertIn("was trained beside another reference", ended.stderr)
            work.run("output_dir=out", *words, "ref_model=other", "max_steps=6")  # other folder, same weights


class References(unittest.TestCase):
    def test_what_is_kept_is_what_is_asked(self):
        for stage, words in sample(itertools.product(("dpo", "kto"), ((), LORA)), 2):
            with self.subTest(stage=stage, words=words), Judged(stage, eval_strategy="steps", eval_steps=2,
                                                                val_size=3) as work:
                work.run("output_dir=live", *words, ranks=2)
                kept = (*words, "precompute_ref_log_probs=true", "distributed_strategy=zero3", "data_cache_dir=cache")
                first = work.run("output_dir=kept", *kept, ranks=2)
                self.assertEqual(len(list((work / "cache").glob("*.reference"))), 2)
                self.assertNotIn("is kept in", first.stderr)
                for a, b in zip(work.records("kept"), work.records("live"), strict=True):
                    for name, value in b.items():
                        # At the first step both rewards of a pair are 0 but for rounding.
                        if name.startswith(("loss", "rewards", "eval_", "kl", "logps")) and "accuracies" not in name \
                                and "_per_second" not in name and "runtime" not in name:
                            self.assertLess(abs(a[name] - value), 1e-9, name)
                again = work.run("output_dir=again", *kept, ranks=1)
                self.assertIn("what the reference says is kept in", again.stderr)
                if stage == "dpo":  # computed otherwise, and so rounded otherwise
                    whole = work.run("output_dir=whole", *kept, "share_prompts=false", ranks=1)
                    self.assertNotIn("is kept in", whole.stderr)

    def test_a_kept_file_that_is_damaged_is_made_again(self):
        with Judged("dpo") as work:
            kept = ("precompute_ref_log_probs=true", "data_cache_dir=cache")
            work.run("output_dir=one", *kept)
            file, = (work / "cache").glob("*.reference")
            whole = file.read_bytes()
            for damaged in (whole[:-1], whole[:20], b"", whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]):
                file.write_bytes(damaged)
                ended = work.run("output_dir=two", "--fresh", *kept)
                self.assertIn("the reference is asked again", ended.stderr)
                self.assertEqual(file.read_bytes(), whole)

    def test_the_policy_without_adapters_is_the_base(self):
        with Judged("dpo", max_steps=3) as work:
            # Modules that train whole have no adapter to be left out.
            for more in (("modules_to_save=lm_head",), ()):
                work.run("output_dir=off", "--fresh", *LORA, *more)
                work.run("output_dir=copy", "--fresh", *LORA, *more, "ref_model=base")
                for a, b in zip(work.logged("off"), work.logged("copy"), strict=True):
                    self.assertLess(relative(a["loss"], b["loss"]), 1e-10)
                    self.assertAlmostEqual(a["rewards/margins"], b["rewards/margins"], places=10)
            # Nothing has been learned yet: policy and reference agree.
            self.assertEqual(work.logged("off")[0]["rewards/margins"], 0)

    def test_a_loss_without_a_reference_needs_no_copy(self):
        with Judged("dpo") as work:
            def reference(*words):
                plan = json.loads(run_skein(["plan", "c.yaml", "output_dir=out", "--json", *words], work.folder).stdout)
                return {row["reference"] for row in plan["model"]["memory_per_rank"]}

            self.assertGreater(min(reference()), 0)
            self.assertEqual(reference("pref_loss=orpo"), {0})
            ended = work.run("output_dir=orpo", "pref_loss=orpo", "ref_model=model")
            self.assertIn("ref_model has no effect: orpo needs no reference", ended.stderr)


class RewardModels(unittest.TestCase):
    def test_it_is_saved_read_and_measured(self):
        for words in ((), LORA):
            with self.subTest(words=words), Judged("rm", rows=24, max_steps=30, dtype="float32", learning_rate=5e-3) as work:
                work.run("output_dir=out", *words)
                self.assertGreater(work.logged("out")[-1]["accuracy"], 0.9)
                measured = json.loads(run_skein(["eval", "out", "--dataset", "pairs.jsonl", "--json"], work.folder).stdout)
                self.assertGreater(measured["accuracy"], 0.9)
                self.assertEqual(measured["num_samples"], 24)
                model = "out"
                if words:
                    config = json.loads((work / "out/adapter_config.json").read_text())
                    self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))
                    self.assertIn("base_model.model.score.weight", read_safetensors(work / "out/adapter_model.safetensors"))
                    run_skein(["merge", "out", "--out", "merged"], work.folder)
                    model = "merged"
                config = json.loads((work / model / "config.json").read_text())
                self.assertEqual(config["architectures"], ["LlamaForSequenceClassification"])
                self.assertEqual(config["id2label"], {"0": "LABEL_0"})
                tensors = read_safetensors(work / model / "model.safetensors")
                self.assertIn("score.weight", tensors)
                self.assertNotIn("lm_head.weight", tensors)
                again = json.loads(run_skein(["eval", model, "--dataset", "pairs.jsonl", "--json"], work.folder).stdout)
                for name, value in measured.items():
                    self.assertLess(abs(again[name] - value), 1e-4, name)
                ended = work.run("output_dir=more", f"model_name_or_path={model}", "train_from_scratch=false", "max_steps=1")
                self.assertLess(work.logged("more")[0]["loss"], 0.6, ended.stderr)

    def test_it_writes_no_text(self):
        with Judged("rm", max_steps=1, dtype="float32") as work:
            work.run("output_dir=out")
            for words in (["generate", "out", "--prompt", "a"], ["chat", "out"],
                          ["train", "c.yaml", "stage=dpo", "model_name_or_path=out", "train_from_scratch=false",
                           "output_dir=x"]):
                ended = run_skein(words, work.folder, code=2)
                self.assertIn("is a reward model: it scores texts and writes none", ended.stderr)
            ended = run_skein(["eval", "base", "--stage", "rm", "--dataset", "pairs.jsonl"], work.folder, code=2)
            self.assertIn("--stage rm measures a reward model", ended.stderr)


class Best(unittest.TestCase):
    def test_the_best_is_what_the_metric_says(self):
        with Judged("dpo", rows=20, max_steps=6, eval_strategy="steps", eval_steps=2, save_steps=2, val_size=6,
                    metric_for_best_model="eval_rewards/margins") as work:
            work.run("output_dir=out")
            evaluations = {record["step"]: record["eval_rewards/margins"] for record in work.records("out")
                           if "eval_loss" in record}
            state = json.loads((work / "out/trainer_state.json").read_text())
            self.assertEqual(state["best_global_step"], max(evaluations, key=evaluations.get))
            self.assertEqual(state["best_metric"], max(evaluations.values()))
            # What was best by another metric is none by this one.
            ended = work.run("output_dir=out", "metric_for_best_model=loss", "max_steps=8")
            state = json.loads((work / "out/trainer_state.json").read_text())
            self.assertEqual(state["best_global_step"], 8, ended.stderr)
            work.run("output_dir=least", "greater_is_better=false")
            state = json.loads((work / "least/trainer_state.json").read_text())
            self.assertEqual(state["best_metric"], min(evaluations.values()))

    def test_a_metric_that_is_not_there(self):
        with Judged("rm") as work:
            ended = work.run("output_dir=out", "eval_strategy=steps", "val_size=3", "metric_for_best_model=acuracy", code=2)
            self.assertIn("evaluations of stage: rm have loss, accuracy", ended.stderr)
            self.assertIn("did you mean 'accuracy'", ended.stderr)


class BadInput(unittest.TestCase):
    CASES = [
        ("dpo", ["pref_loss=aot"], "so that the loss would depend on how a step is split"),
        ("dpo", ["pref_loss=sigmod"], "did you mean 'sigmoid'"),
        ("dpo", ["pref_loss=kto"], "'pref_loss: kto' is for stage: kto, and stage is dpo"),
        ("kto", ["pref_loss=ipo"], "'pref_loss: ipo' is for stage: dpo, and stage is kto"),
        ("dpo", ["pref_loss=[sigmoid,sft]", "loss_weights=[1]"], "'loss_weights' has 1 numbers for 2 of pref_loss"),
        ("dpo", ["pref_loss=exo_pair"], "give label_smoothing=0.001"),
        ("dpo", ["pref_loss=robust", "label_smoothing=0.5"], "give less than 0.5"),
        ("dpo", ["pref_loss=sppo_hard", "f_divergence_type=forward_kl"], "does not go with pref_loss: sppo_hard"),
        ("dpo", ["ref_model=small"], "has a vocabulary of 100, and the model one of 260"),
        ("dpo", ["ref_model=narrow"], "ref_model narrow is another model"),
        ("dpo", ["ref_model=nowhere"], "'nowhere' does not exist"),
        ("dpo", ["train_on_prompt=true"], "answers that were judged are compared without their prompt"),
        ("dpo", ["pref_beta=0"], "'pref_beta' must be more than 0"),
        ("rm", ["finetuning_type=lora", "train_from_scratch=false", "model_name_or_path=base",
                "adapter_name_or_path=sft"], "is an adapter that scores nothing; stage: rm needs a head that does"),
    ]

    def test_each_is_told_before_ranks_start(self):
        with Judged("dpo") as work:
            work.run("output_dir=sft", "stage=sft", "train_file=chat.jsonl", "max_steps=1", "dtype=float32", *LORA)
            for name, changes in (("small", {"vocab_size": 100}), ("narrow", {"hidden_size": 16})):
                shutil.copytree(work / "base", work / name)
                config = json.loads((work / name / "config.json").read_text()) | changes
                (work / name / "config.json").write_text(json.dumps(config))
            for stage, words, told in self.CASES:
                with self.subTest(words=words):
                    data = ["train_file=judged.jsonl"] if stage == "kto" else []
                    ended = work.run("output_dir=out", f"stage={stage}", *data, *words, code=2)
                    self.assertIn(told, ended.stderr)
                    self.assertFalse((work / "out/logs").exists())
                    ahead = run_skein(["plan", "c.yaml", "output_dir=out", f"stage={stage}", *data, *words], work.folder, 2)
                    self.assertIn(told, ahead.stderr)

    def test_rows(self):
        with Judged("dpo") as work:
            pair = {"prompt": "p", "chosen": "a", "rejected": "a"}
            work.write_rows([pair] * 4, "equal.jsonl")
            ended = work.run("output_dir=out", "train_file=equal.jsonl", code=4)
            self.assertIn("equal", ended.stderr)
            ended = work.run("output_dir=out", "train_file=judged.jsonl", code=4)
            self.assertIn("judged.jsonl:1", ended.stderr)
            long = {"prompt": "p" * 200, "chosen": "a", "rejected": "b"}
            work.write_rows([long] * 4, "long.jsonl")
            ended = work.run("output_dir=out", "train_file=long.jsonl", code=4)
            self.assertIn("prompt", ended.stderr)


if __name__ == "__main__":
    unittest.main()
