# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`make demo-less`, shrunken: rows are collected, scored and chosen, and a model is trained on them."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ENVIRONMENT, ROOT, SKEIN


class DemoLess(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-demo-less-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_demo(self, *words, code=0):
        ended = subprocess.run([ROOT / "tools/demo_less.sh", "--quick", "--out", self.folder / "less", "--base",
                                self.folder / "base", *words], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                               env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.assertEqual(ended.returncode, code, ended.stdout)
        return ended.stdout

    def test_from_nothing_and_again(self):
        self.assertRegex(self.run_demo(), r"of 4 chosen rows \d are of the task 'sum'")
        [chosen] = (self.folder / "less/chosen").glob("top_*.jsonl")
        lines = (self.folder / "less/data/train.jsonl").read_bytes().splitlines()
        picked = chosen.read_bytes().splitlines()
        self.assertTrue(picked)
        self.assertLessEqual(set(picked), set(lines))
        self.assertIn("blocks were there", self.run_demo())

    def test_unknown_words(self):
        self.assertIn("unknown option '--fast'", self.run_demo("--fast", code=2))


if __name__ == "__main__":
    unittest.main()
