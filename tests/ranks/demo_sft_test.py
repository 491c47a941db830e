# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`make demo-sft`, shrunken: the model of the first demo is asked, trained and asked again."""
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ENVIRONMENT, ROOT, SKEIN


class DemoSft(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-demo-sft-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_demo(self, *words, code=0):
        ended = subprocess.run([ROOT / "tools/demo_sft.sh", "--quick", "--out", self.folder / "sft", "--base",
                                self.folder / "base", *words], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                               env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.assertEqual(ended.returncode, code, ended.stdout)
        return ended.stdout

    def test_from_nothing_and_again(self):
        output = self.run_demo()
        self.assertRegex(output, r"exact match before \d+\.\d %, after \d+\.\d %")
        self.assertIn("> What is 7 + 5?", output)
        run = self.folder / "sft/run"
        self.assertIn("<|im_end|>", (run / "chat_template.jinja").read_text())
        added = {token["content"]: token["id"]
                 for token in json.loads((run / "tokenizer.json").read_text())["added_tokens"]}
        self.assertIn(added["<|im_end|>"], json.loads((run / "generation_config.json").read_text())["eos_token_id"])
        self.assertGreater(json.loads((run / "config.json").read_text())["vocab_size"], added["<|im_end|>"])
        self.assertEqual(len((self.folder / "sft/after.jsonl").read_text().splitlines()), 20)
        self.assertIn("nothing left to do", self.run_demo())

    def test_unknown_words(self):
        self.assertIn("unknown option '--fast'", self.run_demo("--fast", code=2))


class Instructions(unittest.TestCase):
    def make(self, folder):
        subprocess.run(["python3", "-B", ROOT / "tools/make_instructions.py", folder], check=True,
                       stdout=subprocess.DEVNULL)
        return [(folder / f"{name}.jsonl").read_bytes() for name in ("train", "validation", "questions")]

    def test_same_bytes_and_no_question_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = self.make(Path(folder) / "a"), self.make(Path(folder) / "b")
        self.assertEqual(first, second)
        train, validation, questions = ([json.loads(line)["messages"] for line in data.decode().splitlines()]
                                        for data in first)
        asked = [messages[0]["content"] for messages in train + validation]
        self.assertEqual(len(set(asked)), len(asked))
        self.assertEqual([messages[:1] for messages in validation], questions)
        self.assertEqual({len(messages) for messages in train + validation}, {2})
        self.assertEqual(len(validation), 200)
        self.assertGreater(len(train), 1400)


if __name__ == "__main__":
    unittest.main()
