# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`make demo-dpo`, shrunken: a reward model is trained and measured, and DPO between two rounds of questions."""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness import ENVIRONMENT, ROOT, SKEIN

sys.path.insert(0, str(ROOT / "tools"))
from make_preferences import answer_in, is_preferred  # noqa: E402


class DemoDpo(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-demo-dpo-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_demo(self, *words, code=0):
        ended = subprocess.run([ROOT / "tools/demo_dpo.sh", "--quick", "--out", self.folder / "dpo", "--base",
                                self.folder / "sft", "--demo", self.folder / "demo", *words], cwd=self.folder,
                               stdin=subprocess.DEVNULL, text=True,
                               env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.assertEqual(ended.returncode, code, ended.stdout)
        return ended.stdout

    def test_from_nothing_and_again(self):
        output = self.run_demo()
        self.assertRegex(output, r"held-out accuracy \d+\.\d %")
        self.assertRegex(output, r"held-out reward accuracy \d+\.\d %")
        self.assertRegex(output, r"preferred style before \d+\.\d %, after \d+\.\d %; right before \d+\.\d %, after")
        out = self.folder / "dpo"
        for name, architecture in ("reward", "LlamaForSequenceClassification"), ("run", "LlamaForCausalLM"):
            self.assertIn(f"{out}/{name}/training_loss.svg", output)
            self.assertTrue((out / name / "training_loss.svg").exists(), name)
            self.assertEqual(json.loads((out / name / "config.json").read_text())["architectures"], [architecture])
        for name in "before", "after":
            self.assertEqual(len((out / f"{name}.jsonl").read_text().splitlines()), 20)
        self.assertEqual(self.run_demo().count("nothing left to do"), 2)

    def test_unknown_words(self):
        self.assertIn("unknown option '--fast'", self.run_demo("--fast", code=2))


class Preferences(unittest.TestCase):
    NAMES = ("train", "validation", "questions")

    def make(self, tool, *words):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["python3", "-B", ROOT / "tools" / tool, folder, *words], check=True,
                           stdout=subprocess.DEVNULL)
            return {name: (Path(folder) / f"{name}.jsonl").read_bytes() for name in self.NAMES}

    def rows(self, *words):
        return {name: [json.loads(line) for line in data.decode().splitlines()]
                for name, data in self.make(*words).items()}

    def test_same_bytes_for_one_seed(self):
        first = self.make("make_preferences.py")
        self.assertEqual(first, self.make("make_preferences.py"))
        self.assertNotEqual(first, self.make("make_preferences.py", "--seed", "2"))

    def test_pairs(self):
        files = self.rows("make_preferences.py")
        self.assertEqual([len(files[name]) for name in self.NAMES], [1200, 200, 200])
        for pair in files["train"] + files["validation"]:
            [chosen], [rejected] = pair["chosen"], pair["rejected"]
            self.assertTrue(is_preferred(chosen["content"]))
            self.assertFalse(is_preferred(rejected["content"]))
            self.assertEqual(answer_in(chosen["content"]), rejected["content"])
        self.assertEqual([pair["prompt"] for pair in files["validation"]],
                         [row["messages"] for row in files["questions"]])

    def test_held_out_questions_were_never_answered(self):
        """Neither in the pairs nor in the instructions of the model that they are for."""
        files, instructions = self.rows("make_preferences.py"), self.rows("make_instructions.py")
        answered = {pair["prompt"][0]["content"] for pair in files["train"]}
        answered |= {row["messages"][0]["content"] for row in instructions["train"]}
        self.assertEqual(answered & {pair["prompt"][0]["content"] for pair in files["validation"]}, set())


if __name__ == "__main__":
    unittest.main()
