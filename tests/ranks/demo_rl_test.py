# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`make demo-rl`, shrunken: five steps of GRPO, a reward model, five steps of PPO; the same answers under zero2 and zero3."""
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ENVIRONMENT, ROOT, SKEIN, run_skein

QUICK = ["max_steps=5", "warmup_steps=1", "logging_steps=1", "eval_steps=5", "save_steps=5"]


def records_of(run):
    return [json.loads(line) for line in (run / "trainer_log.jsonl").read_text().splitlines()]


class DemoRl(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-demo-rl-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "rl"

    def run_demo(self, *words, code=0):
        ended = subprocess.run([ROOT / "tools/demo_rl.sh", "--quick", "--out", self.out, "--base",
                                self.folder / "sft", "--demo", self.folder / "demo", *words], cwd=self.folder,
                               stdin=subprocess.DEVNULL, text=True,
                               env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.assertEqual(ended.returncode, code, ended.stdout)
        return ended.stdout

    def test_from_nothing_and_again(self):
        output = self.run_demo()
        self.assertRegex(output, r"exact answers before \d+\.\d %, after GRPO \d+\.\d %, after PPO \d+\.\d %")
        self.assertRegex(output, r"held-out accuracy \d+\.\d %")
        self.assertRegex(output, r"held-out reward before \S+, after PPO \S+: \S+ standard deviations")
        for name in "before", "grpo", "ppo":
            self.assertEqual(len((self.out / f"{name}.jsonl").read_text().splitlines()), 20)
        for name in "grpo", "ppo":
            with self.subTest(name):
                self.check_run(self.out / name, output)
        self.assertEqual(self.run_demo().count("nothing left to do"), 3)
        self.check_same_answers()

    def check_run(self, run, output):
        self.assertIn(f"{run}/training_reward.svg", output)
        self.assertIn("<svg", (run / "training_reward.svg").read_text())
        records = records_of(run)
        steps = [record for record in records if "reward" in record]
        self.assertEqual([record["step"] for record in steps], [1, 2, 3, 4, 5])
        self.assertEqual([record["step"] for record in records if "eval_reward" in record], [0, 5])
        for record in steps:
            if record.get("sampling/sampling_logp_difference/max") is not None:
                self.assertLess(record["sampling/sampling_logp_difference/max"], 1e-4)
            if run.name == "grpo":
                self.assertEqual(record["ratio"], 1)  # a step's only update
        said = [json.loads(line) for line in (run / "completions.jsonl").read_text().splitlines()]
        self.assertEqual(sorted({line["step"] for line in said}), [1, 2, 3, 4, 5])
        for line in said:
            self.assertLessEqual(line["num_tokens"], 24)
            self.assertTrue(line["prompt"].endswith("<|im_start|>assistant\n"), line)

    def check_same_answers(self):
        """Under zero2, which the demo has taken, and zero3."""
        data, words = self.out / "data", [f"model_name_or_path={self.folder / 'sft/run'}", *QUICK]
        for name, more in ("grpo", []), ("ppo", [f"reward_model={self.out / 'reward'}", "critic_warmup=1"]):
            with self.subTest(name):
                run = self.folder / f"{name}-zero3"
                run_skein(["train", ROOT / f"recipes/demo_{name}.yaml", "--nproc-per-node", "2", *words, *more,
                           f"train_file={data / 'train.jsonl'}", f"eval_file={data / 'validation.jsonl'}",
                           "distributed_strategy=zero3", f"output_dir={run}"], ROOT)
                self.assertEqual((run / "completions.jsonl").read_text(),
                                 (self.out / name / "completions.jsonl").read_text())
                rewards = [[record["eval_reward"] for record in records_of(folder) if "eval_reward" in record]
                           for folder in (run, self.out / name)]
                self.assertEqual(*rewards)

    def test_unknown_words(self):
        self.assertIn("unknown option '--fast'", self.run_demo("--fast", code=2))


class Questions(unittest.TestCase):
    NAMES = ("train", "validation", "train_pairs", "validation_pairs")

    def make(self, tool, *words, names=NAMES):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["python3", "-B", ROOT / "tools" / tool, folder, *words], check=True,
                           stdout=subprocess.DEVNULL)
            return {name: (Path(folder) / f"{name}.jsonl").read_bytes() for name in names}

    def rows(self, *words, **names):
        return {name: [json.loads(line) for line in data.decode().splitlines()]
                for name, data in self.make(*words, **names).items()}

    def test_same_bytes(self):
        self.assertEqual(self.make("make_questions.py"), self.make("make_questions.py"))

    def test_no_question_was_asked_before(self):
        files = self.rows("make_questions.py")
        taught = self.rows("make_instructions.py", names=("train", "validation"))
        taught = {row["messages"][0]["content"] for rows in taught.values() for row in rows}
        asked = {name: [row["messages"][0]["content"] for row in files[name]] for name in ("train", "validation")}
        self.assertEqual(set(asked["train"]) & set(asked["validation"]), set())
        for questions in asked.values():
            self.assertEqual(len(set(questions)), len(questions))
            self.assertEqual(set(questions) & taught, set())

    def test_pairs_are_of_the_same_questions(self):
        files = self.rows("make_questions.py")
        for name in "train", "validation":
            right = {row["messages"][0]["content"]: row["answer"] for row in files[name]}
            self.assertGreater(len(files[f"{name}_pairs"]), len(right))
            for pair in files[f"{name}_pairs"]:
                (asked,), (chosen,), (rejected,) = pair["prompt"], pair["chosen"], pair["rejected"]
                self.assertEqual(chosen["content"], right[asked["content"]])
                self.assertNotEqual(rejected["content"], chosen["content"])


if __name__ == "__main__":
    unittest.main()
