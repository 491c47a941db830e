# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Stages grpo, rloo and ppo, end to end: what every split learns, runs that are cut, rewards, evaluations, and what is refused."""
import itertools
import json
import os
import shutil
import signal
import time
import unittest

from asked import FULL, LORA, STAGES, Asked, learned
from harness import SPECIAL_TOKENS, TIMEOUT, children, finish, gpt2, kill, run_skein, sample

PROGRAM = "reward_program=[python3,rewards.py]"
DTYPES = (("float64", 1e-9), ("float32", 1e-5))


class Splits(unittest.TestCase):
    def test_every_split_has_the_same_losses_and_numbers(self):
        cases = list(itertools.product((1, 2, 4), (1, 2, 4), ("ddp", "zero2", "zero3")))
        for (stage, words), (dtype, bound) in zip(sample(itertools.product(STAGES, (FULL, LORA)), 3), sample(DTYPES, 2) * 3):
            with Asked(stage, dtype=dtype) as work:
                work.run("output_dir=one", "per_device_train_batch_size=8", *words)
                expected = work.logged("one")
                self.assertEqual(len(expected), 3)
                for ranks, rows, strategy in sample(filter(lambda case: case[0] * case[1] <= 8, cases), 3):
                    with self.subTest(stage=stage, words=words, dtype=dtype, ranks=ranks, rows=rows, strategy=strategy):
                        work.run("output_dir=other", "--fresh", f"per_device_train_batch_size={rows}", *words,
                                 f"distributed_strategy={strategy}", ranks=ranks)
                        self.compare(work.logged("other"), expected, bound)

    def compare(self, records, expected, bound):
        for a, b in zip(records, expected, strict=True):
            mine, theirs = learned(a), learned(b)
            self.assertEqual(mine.keys(), theirs.keys())
            for name, value in theirs.items():
                self.assertLess(abs(mine[name] - value), bound * (1 + abs(value)), name)

    def test_shared_prompts_change_no_number(self):
        for stage, words in sample(itertools.product(("grpo", "rloo"), (FULL, LORA)), 1):
            with self.subTest(stage=stage, words=words), Asked(stage) as work:
                for shares in ("true", "false"):
                    work.run(f"output_dir={shares}", f"share_prompts={shares}", *words, ranks=2)
                self.compare(work.logged("true"), work.logged("false"), 1e-9)

    def test_stages_are_bit_equal(self):
        for stage, words in sample(itertools.product(STAGES, (FULL, LORA)), 2):
            with self.subTest(stage=stage, words=words), Asked(stage, dtype="float32") as work:
                files = []
                for strategy in ("ddp", "zero1", "zero2", "zero3"):
                    work.run(f"output_dir={strategy}", "per_device_train_batch_size=4", *words,
                             f"distributed_strategy={strategy}", ranks=2)
                    name = "adapter_model.safetensors" if words == LORA else "model.safetensors"
                    files.append([(work / strategy / file).read_bytes() for file in (name, "completions.jsonl")])
                self.assertEqual(files[1:], files[:1] * 3)

    def test_the_same_samples_under_zero2_and_zero3(self):
        for stage in ("grpo", "ppo"):
            with self.subTest(stage), Asked(stage, max_steps=5) as work:
                for strategy in ("zero2", "zero3"):
                    work.run(f"output_dir={strategy}", f"distributed_strategy={strategy}", ranks=2)
                self.assertEqual([(line["prompt"], line["completion"], line["reward"]) for line in work.said("zero2")],
                                 [(line["prompt"], line["completion"], line["reward"]) for line in work.said("zero3")])


class Numbers(unittest.TestCase):
    def test_under_zero3_weights_need_not_be_whole(self):
        """Seven questions on two ranks in steps of two: one rank writes longer than the other, which keeps it company."""
        with Asked("grpo", rows=7, reward_funcs=["length:1,6,2"]) as work:
            words = ("distributed_strategy=zero3", "per_device_train_batch_size=2", "max_completion_length=24")
            for output, gathers in (("whole", "true"), ("units", "false")):
                work.run(f"output_dir={output}", f"ds3_gather_for_generation={gathers}", *words, ranks=2)
            self.assertEqual(work.said("units"), work.said("whole"))
            self.assertEqual([learned(record) for record in work.logged("units")], [learned(record) for record in work.logged("whole")])

    def test_a_first_update_compares_the_policy_with_itself(self):
        for stage in STAGES:
            with self.subTest(stage), Asked(stage, dtype="float32", num_iterations=1, num_mini_batches=1) as work:
                work.run("output_dir=out", ranks=2)
                for record in work.logged("out"):
                    self.assertEqual(record["ratio"], 1)
                    self.assertEqual(record["clip_ratio/region_mean"], 0)
                    self.assertLess(record["sampling/sampling_logp_difference/max"], 1e-4)
                    self.assertEqual(record["approx_kl"], 0)

    def test_a_policy_that_has_not_learned_is_at_its_reference(self):
        with Asked("ppo", max_steps=1) as work:
            for words in (FULL, LORA):
                work.run("output_dir=out", "--fresh", *words)
                self.assertAlmostEqual(work.logged("out")[0]["objective/kl"], 0, 12)

    def test_rewards_are_learned(self):
        for stage in STAGES:
            with self.subTest(stage), Asked(stage, max_steps=40, dtype="float32", num_iterations=1, reward_funcs=["regex:[a-m]"],
                                            global_batch_size=32, learning_rate=1e-2, kl_coef=0) as work:
                work.run("output_dir=out")
                rewards = [record["reward"] for record in work.logged("out")]
                self.assertGreater(sum(rewards[-5:]) / 5, sum(rewards[:5]) / 5 + 0.3)

    def test_evaluations_are_of_held_out_prompts(self):
        keys = dict(max_steps=4, save_steps=2, val_size=3, eval_strategy="steps", eval_steps=2, eval_on_start=True)
        for words in (["reward_funcs=[]", "reward_model=judge"], [PROGRAM]):
            with self.subTest(words=words), Asked("grpo", **keys) as work:
                work.make_judge()
                values = []
                for ranks in (1, 2):
                    work.run(f"output_dir=out{ranks}", *words, ranks=ranks)
                    records = [record for record in work.records(f"out{ranks}") if "eval_reward" in record]
                    self.assertEqual([record["step"] for record in records], [0, 2, 4])
                    values.append([record["eval_reward"] for record in records])
                    state = json.loads((work / f"out{ranks}/trainer_state.json").read_text())
                    self.assertEqual(state["best_metric"], max(values[-1][1:]))
                for one, two in zip(*values):
                    self.assertAlmostEqual(one, two, places=9)
                name = "rewards/reward_model/mean" if "reward_model=judge" in words else "rewards/letters/mean"
                self.assertIn(name, work.logged("out1")[0])
                self.assertIn("eval_" + name, records[0])

    def test_a_reward_model_says_what_it_says_of_the_same_texts_elsewhere(self):
        with Asked("ppo", max_steps=1, global_batch_size=32, num_iterations=1, num_mini_batches=1) as work:
            work.make_judge()
            for more in ([], ["reward_retokenize=true"]):
                work.run("output_dir=out", "--fresh", "reward_funcs=[]", "reward_model=judge", *more)
                lines = [line for line in work.said("out") if line["finished"] and line["completion"].isascii() and line["completion"].strip()]
                self.assertGreater(len(lines), 2)
                for line in lines[:3]:
                    asked = line["prompt"].partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
                    answer = lambda text: [{"role": "assistant", "content": text}]
                    work.write_rows([{"prompt": [{"role": "user", "content": asked}], "chosen": answer(line["completion"]),
                                      "rejected": answer("?")}], "one.jsonl")
                    said = json.loads(run_skein(["eval", "judge", "--dataset", "one.jsonl", "--json"], work.folder).stdout)
                    self.assertAlmostEqual(said["mean_reward"] + said["margin"] / 2, line["reward"], places=3)

    def test_what_is_written_down(self):
        with Asked("ppo", max_steps=2, report_to="tensorboard") as work:
            work.run("output_dir=out", ranks=2)
            said = work.said("out")
            self.assertEqual({line["step"] for line in said}, {1, 2})
            for line in said:
                self.assertTrue(line["prompt"].endswith("<|im_start|>assistant\n"), line)
                self.assertLessEqual(line["num_tokens"], 8)
                self.assertEqual(set(line["rewards"]), {"regex", "length"})
                self.assertAlmostEqual(sum(line["rewards"].values()), line["reward"])
                self.assertIsInstance(line["advantage"], float)
            events, = (work / "out").rglob("events.out.tfevents*")
            self.assertIn(b"completions", events.read_bytes())
            self.assertTrue((work / "out/training_reward.svg").exists())

    def test_groups_without_spread_teach_nothing(self):
        with Asked("grpo", reward_funcs=["regex:.*"]) as work:
            for words, code in ([], 0), (["filter_groups=true"], 2):
                ended = work.run("output_dir=out", "--fresh", *words, code=code)
                for record in work.logged("out"):
                    self.assertEqual((record["reward"], record["frac_reward_zero_std"]), (1, 1))
                    self.assertEqual(record.get("grad_norm"), None if words else 0)  # filtered: there is no update
            self.assertIn("nothing was learned in 3 steps", ended.stderr)


    def test_a_cache_of_the_least_size_is_enough(self):
        with Asked("grpo", max_steps=1) as work:
            ended = work.run("output_dir=out", "rollout_cache_size=32767", code=2)
            self.assertIn("take 32768", ended.stderr)
            work.run("output_dir=out", "rollout_cache_size=32768")

    def test_schedules_do_not_wait_for_updates_that_overflow(self):
        with Asked("grpo", max_steps=4, warmup_steps=4, lr_scheduler_type="linear") as work:
            work.run("output_dir=wide", "dtype=float32")
            ended = work.run("output_dir=narrow", "dtype=float16", "initial_scale_power=40")
            self.assertIn("overflow", ended.stderr)
            rates = [[record["learning_rate"] for record in work.logged(output)] for output in ("narrow", "wide")]
            self.assertEqual(*rates)

    def test_steps_that_update_nothing_say_so(self):
        with Asked("ppo", critic_warmup=2) as work:
            ended = work.run("output_dir=out")
            self.assertNotIn("nan", ended.stderr)
            records = work.logged("out")
            self.assertEqual([("loss" in record, "grad_norm" in record, "learning_rate" in record) for record in records],
                             [(False,) * 3, (False,) * 3, (True,) * 3])
            self.assertTrue(all(record["loss/value_avg"] > 0 for record in records))

    def test_a_critics_update_is_left_out(self):
        """Of its rewards the square is finite in float64, and a gradient in float32 is not."""
        with Asked("ppo", reward_funcs=["length:1,6,2"], reward_weights=[1e40]) as work:
            ended = work.run("output_dir=out", "dtype=float32", "nan_policy=skip")
            self.assertIn("gradient is not finite", ended.stderr)
            for record in work.logged("out"):
                self.assertGreater(record["loss/value_avg"], 1e60)


class Turns(unittest.TestCase):
    WORDS = ["reward_funcs=[]", "reward_program=[python3,replies.py]", "max_turns=3"]
    LONG = [*WORDS, "max_completion_length=80"]

    def test_replies_are_written_behind_answers_and_not_learned(self):
        for stage in ("grpo", "ppo"):
            with self.subTest(stage), Asked(stage, **{"val_size": 3, "eval_strategy": "steps", "eval_steps": 2}) as work:
                expected = None
                for ranks, strategy in (1, "ddp"), (2, "zero3"):
                    work.run("output_dir=out", "--fresh", f"distributed_strategy={strategy}", *self.LONG, ranks=ranks)
                    records = work.logged("out")
                    if expected:
                        Splits.compare(self, records, expected, 1e-9)
                    expected = records
                said = work.said("out")
                self.assertEqual({line.get("turn", 0) for line in said}, {2})
                replied = [line for line in said if "turn 0" in line["completion"]]
                self.assertTrue(replied)
                for line in replied:
                    # Letters of the template and of the reply are no tokens of the model's.
                    self.assertLess(line["num_tokens"], 80 - len("user turn 0 assistant"))
                both = [line for line in replied if "turn 1" in line["completion"]]
                self.assertTrue(both)
                self.assertRegex(both[0]["completion"], r"(?s)\nuser\nturn 0\nassistant\n.*\nuser\nturn 1\nassistant\n")

    def test_a_sampler_and_training_agree_on_what_follows_a_reply(self):
        with Asked("grpo", dtype="float32", num_iterations=1, num_mini_batches=1) as work:
            work.run("output_dir=out", *self.LONG, ranks=2)
            for record in work.logged("out"):
                self.assertEqual(record["ratio"], 1)
                self.assertLess(record["sampling/sampling_logp_difference/max"], 1e-4)

    def test_what_cannot_be_replied_to(self):
        with Asked("grpo", max_steps=1) as work:
            # Answers that are cut, and no room for a reply.
            for length in 2, 12:
                work.run("output_dir=out", "--fresh", *self.WORDS, f"max_completion_length={length}")
                self.assertFalse([line for line in work.said("out") if "turn 0" in line["completion"]])
            (work / "replies.py").write_text((work / "replies.py").read_text().replace(' + 1 < asked["max_turns"]', " > -1"))
            ended = work.run("output_dir=out", "--fresh", *self.LONG, code=2)
            self.assertIn("messages where no further turn is allowed (max_turns)", ended.stderr)


    def test_a_conversation_ends_where_positions_do(self):
        with Asked("grpo", max_steps=2) as work:
            config = work / "base/config.json"
            known = 64
            config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": known}))
            work.run("output_dir=out", *self.LONG, ranks=2)
            said = work.said("out")
            self.assertTrue([line for line in said if "turn 0" in line["completion"]])
            self.assertLess(max(line["num_tokens"] for line in said), known)


class Cut(unittest.TestCase):
    """Runs that are killed or stopped, and go on."""
    KEYS = dict(dtype="float32", max_steps=6, save_steps=2, max_completion_length=48, eval_strategy="steps", eval_steps=3, val_size=3,
                eval_on_start=True)

    def files(self, work, output):
        run = work / output
        names = ["model.safetensors", "completions.jsonl", *(f"checkpoint-6/{name}" for name in (
            "model.safetensors", "optimizer.safetensors"))]
        if work.keys["stage"] == "ppo":
            names += [f"checkpoint-6/critic/{name}" for name in ("model.safetensors", "optimizer.safetensors")]
        numbers = [(record["step"], record.get("loss"), record.get("reward"), record.get("eval_reward"))
                   for record in work.records(output)]
        return {name: (run / name).read_bytes() for name in names} | {"numbers": numbers}

    def check(self, work, expected, words):
        work.run("output_dir=cut", *words, ranks=2)
        found = self.files(work, "cut")
        for name, content in expected.items():
            self.assertTrue(found[name] == content, f"{name} differs from the undisturbed run's")
        shutil.rmtree(work / "cut")

    def undisturbed(self, work, words):
        began = time.monotonic()
        work.run("output_dir=whole", *words, ranks=2)
        seconds = time.monotonic() - began
        expected = self.files(work, "whole")
        if work.keys["stage"] == "ppo":
            self.assertIn("checkpoint-6/critic/model.safetensors", expected)
        return expected, seconds

    def cut(self, work, words, seconds):
        process = work.start("output_dir=cut", *words, ranks=2)
        time.sleep(seconds)
        kill(children(process.pid))
        process.kill()
        finish(process)

    def test_killed_at_any_instant(self):
        for stage, own in ("grpo", [PROGRAM]), ("ppo", [PROGRAM, "kl_target=1"]), ("grpo", Turns.LONG):
            with Asked(stage, **self.KEYS) as work:
                words = ["distributed_strategy=zero2", *own]
                expected, seconds = self.undisturbed(work, words)
                for instant in sample([0.05 + 0.1 * part for part in range(10)], 2):
                    with self.subTest(stage=stage, words=own, instant=instant):
                        self.cut(work, words, seconds * instant)
                        self.check(work, expected, words)

    def wait_for_batch(self, work, batch):
        give_up = time.monotonic() + TIMEOUT
        while not (work / f"batch-{batch}").exists():
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.002)

    def forget_batches(self, work):
        for file in work.folder.glob("batch-*"):
            file.unlink()

    def test_killed_inside_rewards_and_rollout(self):
        # Every question after the first evaluation's is one of training's: batch 4 is the step's that follows the first checkpoint.
        for stage, seconds in sample(itertools.product(("grpo", "ppo"), (0, 0.15, 0.25, 0.3)), 2):
            with self.subTest(stage=stage, seconds=seconds), Asked(stage, **self.KEYS) as work:
                words = ["distributed_strategy=zero3", PROGRAM]
                (work / "slow").touch()
                expected, _ = self.undisturbed(work, words)
                self.forget_batches(work)
                process = work.start("output_dir=cut", *words, ranks=2)
                self.wait_for_batch(work, 4)
                time.sleep(seconds)
                kill(children(process.pid))
                process.kill()
                finish(process)
                self.check(work, expected, words)

    def test_stopped_inside_a_step(self):
        for stage, batch in sample(itertools.product(("grpo", "ppo"), (0, 1, 4)), 2):
            with self.subTest(stage=stage, batch=batch), Asked(stage, **self.KEYS) as work:
                words = ["distributed_strategy=zero2", PROGRAM]
                (work / "slow").touch()
                expected, _ = self.undisturbed(work, words)
                self.forget_batches(work)
                process = work.start("output_dir=cut", *words, ranks=2)
                self.wait_for_batch(work, batch)
                os.kill(process.pid, signal.SIGTERM)
                ended = finish(process)
                self.assertEqual(ended.returncode, 75, ended.stderr)
                self.assertIn("the same command continues", ended.stderr)
                self.check(work, expected, words)

    def test_other_splits_go_on(self):
        for stage in ("grpo", "ppo"):
            with self.subTest(stage), Asked(stage, **self.KEYS | {"dtype": "float64"}) as work:
                work.run("output_dir=whole", ranks=1)
                work.run("output_dir=cut", "max_steps=4", "distributed_strategy=zero3", ranks=2)
                work.run("output_dir=cut", ranks=1)
                for one, two in zip(work.logged("whole"), work.logged("cut"), strict=True):
                    self.assertAlmostEqual(one["loss"], two["loss"], places=9)


class BadInput(unittest.TestCase):
    MODEL = ["reward_funcs=[]", "reward_model=judge"]
    CASES = [
        ("grpo", ["reward_funcs=[]"], "stage: grpo has no reward"),
        ("grpo", ["reward_funcs=[acuracy]"], "did you mean 'accuracy'"),
        ("grpo", ["policy_loss=dappo"], "did you mean 'dapo'"),
        ("grpo", ["advantage_estimator=grup"], "did you mean 'group'"),
        ("grpo", ["num_generation=4"], "did you mean 'num_generations'"),
        ("grpo", ["num_generations=3"], "groups do not divide: a step has 16 answers"),
        ("rloo", ["num_generations=1"], "num_generations is 1, but advantage_estimator: rloo compares"),
        ("grpo", ["reward_weights=[1,2,3]"], "'reward_weights' has 3 numbers for 2 rewards (regex:[a-m], length:1,6,2)"),
        ("ppo", ["reward_model=base"], "is no reward model but one that writes text, and the very model that trains"),
        ("ppo", ["reward_model=nowhere"], "'nowhere' does not exist"),
        ("ppo", ["critic_model=narrow_words"], "critic_model narrow_words reads other tokens than the model writes"),
        ("ppo", ["reward_model=other_words"], "reads other tokens than the model writes: id 97 is \"b\" there and \"a\" here; "
                                              "reward_retokenize=true reads the texts anew"),
        ("ppo", ["critic_warmup=3"], "'critic_warmup' is 3, and the run has 3 steps"),
        ("ppo", ["ref_model=narrow"], "ref_model narrow is another model"),
        ("grpo", ["kl_coef=0.1", "ref_model=nowhere"], "'nowhere' does not exist"),
        ("grpo", ["model_name_or_path=endless", "template=", "chat_template=plain.jinja"], "nothing ends an answer of endless"),
        ("grpo", ["reward_program=[no-such-program]"], "no program 'no-such-program' in PATH"),
        ("grpo", ["steps_per_generation=3", "num_mini_batches=null", "gradient_accumulation_steps=2", "per_device_train_batch_size=2"],
         "steps_per_generation=3 is not a multiple of gradient_accumulation_steps, 2"),
        ("grpo", ["max_turns=2", PROGRAM, "reward_model=judge", "reward_retokenize=true"], "'max_turns' above 1 does not go with reward_retokenize"),
        ("ppo", ["dtype=float16"], "a critic has no loss scale of its own"),
        ("ppo", ["critic_model=trained"], "is a model that was trained beside a critic, and not that: give trained/critic"),
        ("grpo", ["stop=['']"], "'stop' has an empty text"),
        ("grpo", ["rollout_cache_size=100"], "the keys and values of one answer with its prompt (40 + 8 tokens) take 32768"),
        ("grpo", ["metric_for_best_model=rewrd", "eval_strategy=steps", "val_size=3"], "did you mean 'reward'"),
    ]

    def models(self, work):
        work.make_judge()
        for name, changes in (("narrow", {"hidden_size": 16}), ("endless", {"eos_token_id": None})):
            shutil.copytree(work / "base", work / name)
            config = json.loads((work / name / "config.json").read_text()) | changes
            (work / name / "config.json").write_text(json.dumps(config))
        (work / "endless/generation_config.json").unlink(missing_ok=True)
        work.run("output_dir=ppo", "stage=ppo", "max_steps=1", "save_steps=1")
        (work / "trained").symlink_to("ppo/checkpoint-1")
        # A checkpoint's critic has no tokenizer of its own, and goes on as one.
        work.run("output_dir=other", "stage=ppo", "max_steps=1", "critic_model=ppo/checkpoint-1/critic")
        (work / "endless/tokenizer_config.json").write_text("{}")
        tokenizer = (work / "endless/tokenizer.json").read_text()
        for number, token in enumerate(SPECIAL_TOKENS):
            tokenizer = tokenizer.replace(token, f"<|{number}|>")
        (work / "endless/tokenizer.json").write_text(tokenizer)
        (work / "plain.jinja").write_text("{% for message in messages %}{{ message.content }} {% endfor %}")
        for name, model in (("other_words", "judge"), ("narrow_words", "base")):
            shutil.copytree(work / model, work / name)
            text = (work / name / "tokenizer.json").read_text()
            (work / name / "tokenizer.json").write_text(text.replace('"a": 97', '"b": 97').replace('"b": 98', '"a": 98'))

    def test_each_is_told_once(self):
        with Asked("grpo") as work:
            self.models(work)
            for stage, words, told in self.CASES:
                with self.subTest(words=words):
                    ended = work.run("output_dir=out", "--fresh", f"stage={stage}", *words, ranks=2, code=2)
                    self.assertEqual(ended.stderr.count(told), 1, ended.stderr)

    def test_reward_models_that_read_other_tokens_read_the_texts_anew(self):
        with Asked("ppo", max_steps=1) as work:
            self.models(work)
            for folder in ("judge", "other_words"):
                work.run(f"output_dir=by_{folder}", "reward_funcs=[]", f"reward_model={folder}", "reward_retokenize=true")
            work.run("output_dir=by", "reward_funcs=[]", "reward_model=judge")
            self.assertAlmostEqual(work.logged("by")[0]["reward"], work.logged("by_judge")[0]["reward"], delta=0.5)
            self.assertNotEqual(work.logged("by_other_words")[0]["reward"], work.logged("by_judge")[0]["reward"])

    def program(self, work, body, *words, code=2, ranks=2):
        """One that begins well, and has `asked`."""
        (work / "bad.py").write_text("import json, sys, time\nprint('{\"protocol\": 1}', flush=True)\n"
                                     "for line in sys.stdin:\n    asked = json.loads(line)\n    " + body + "\n")
        return work.run("output_dir=out", "--fresh", "reward_funcs=[]", "reward_program=[python3,bad.py]", *words, ranks=ranks, code=code)

    def test_reward_programs(self):
        answer = "print(json.dumps({'id': asked['id'], 'reward': %s}), flush=True)"
        cases = [("sys.exit(3)", [], "has ended (exit code 3)"),
                 ("time.sleep(60)", ["reward_timeout=1"], "is late; 0 of 4 answers had come (1 s are allowed)"),
                 ("print('rubbish', flush=True)", [], "it answered 'rubbish'"),
                 (answer % "float('nan')", [], "NaN"),
                 (answer % "[1]", [], "it answered")]
        with Asked("grpo", num_mini_batches=1, num_iterations=1, per_device_train_batch_size=4) as work:
            for body, words, told in cases:
                with self.subTest(told=told):
                    ended = self.program(work, body, *words)
                    self.assertIn(told, ended.stderr)
                    self.assertRegex(ended.stderr, r"reward program 'python3 bad\.py': .*sample \d+ \(.*questions\.jsonl:\d+\), generation \d+")
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
            # On request what cannot be scored is left out of learning.
            ended = self.program(work, answer % "None if asked['generation'] == 0 else asked['num_tokens']", "skip_unscored=true", code=0)
            self.assertIn("left out of learning", ended.stderr)

    def test_programs_that_differ_by_rank(self):
        with Asked("grpo") as work:
            (work / "differ.py").write_text("""
import json, os, sys
print(json.dumps({"protocol": 1, "names": ["a", "b"], "weights": [1, 1 + int(os.environ["RANK"])]}), flush=True)
sys.stdin.read()
""")
            ended = work.run("output_dir=out", "reward_funcs=[]", "reward_program=[python3,differ.py]", ranks=2, code=2)
            self.assertIn("calls or weighs its rewards otherwise on rank 1 than on rank 0", ended.stderr)

    def test_prompts_and_answers(self):
        with Asked("grpo") as work:
            asked = [{"messages": [{"role": "user", "content": "a" * length}], "answer": "b"} for length in (5, 90, 6, 7)]
            work.write_rows(asked, "long.jsonl")
            ended = work.run("output_dir=out", "train_file=long.jsonl", "long_prompts=error", code=4)
            self.assertIn("long.jsonl:2", ended.stderr)
            ended = work.run("output_dir=out", "train_file=long.jsonl", "max_steps=1")
            self.assertRegex(ended.stderr + ended.stdout, "1 .*max_prompt_length|max_prompt_length.* 1 ")
            work.write_rows(asked[1:2], "all_long.jsonl")
            ended = work.run("output_dir=out", "--fresh", "train_file=all_long.jsonl", code=4)
            self.assertIn("max_prompt_length", ended.stderr)

    def test_answers_that_end_at_once(self):
        """Empty but for their end."""
        with Asked("grpo", max_steps=2) as work:
            for stage in STAGES:
                with self.subTest(stage):
                    work.run("output_dir=short", "--fresh", f"stage={stage}", "max_completion_length=1", "mask_truncated_completions=true")
                    for record in work.logged("short"):
                        self.assertEqual(record["completions/max_length"], 1)

    def test_another_reference_is_refused(self):
        with Asked("ppo", save_steps=1, max_steps=1) as work:
            work.run("output_dir=out")
            work.begin("other", "stage=sft", "train_file=chat.jsonl", "max_steps=3")
            ended = work.run("output_dir=out", "ref_model=other", "max_steps=2", code=2)
            self.assertIn("was trained beside another reference", ended.stderr)

    def test_strategies_cannot_be_compared(self):
        with Asked("grpo") as work:
            ended = run_skein(["verify-strategy", "c.yaml"], work.folder, code=2)
            self.assertIn("stage: grpo writes its own", ended.stderr)

    def test_a_model_with_few_positions(self):
        with Asked("grpo") as work:
            work.write_model(gpt2(vocab_size=260, n_positions=40))
            work.begin("few", "stage=pt", "train_file=text.txt", "max_steps=1", block_size=40)
            ended = work.run("output_dir=out", "model_name_or_path=few", code=2)
            self.assertIn("max_prompt_length + max_completion_length is 40 + 8 = 48, but the model knows 40 positions", ended.stderr)


if __name__ == "__main__":
    unittest.main()
