# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The instructions of the second demo."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ROOT


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
        self.assertEqual(len(validation), 300)
        self.assertGreater(len(train), 2500)


if __name__ == "__main__":
    unittest.main()
