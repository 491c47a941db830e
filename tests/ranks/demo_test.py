# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`make demo`, shrunken: from nothing, interrupted, continued, and once more with nothing left to do."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, ROOT, SKEIN, TIMEOUT

LAST_STEP = 12  # of --quick


class Demo(unittest.TestCase):
    def setUp(self):
        self.out = Path(tempfile.mkdtemp(prefix="skein-demo-"))
        self.addCleanup(shutil.rmtree, self.out)

    def start(self, *words):
        return subprocess.Popen([ROOT / "tools/demo.sh", "--quick", "--out", self.out, *words],
                                cwd=self.out, env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def finish(self, process, code):
        output, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, code, output)
        return output

    def logged_steps(self):
        log = self.out / "run/trainer_log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [record["step"] for record in map(json.loads, lines) if "loss" in record]

    def interrupt_after(self, step):
        """Ctrl-C, as a terminal sends it: to the script and to all that it started."""
        process = self.start()
        self.addCleanup(process.kill)
        give_up = time.monotonic() + TIMEOUT
        while step not in self.logged_steps():
            self.assertIsNone(process.poll(), "ended early")
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        return self.finish(process, 75)

    def test_stops_continues_and_ends(self):
        self.assertIn("the same command continues", self.interrupt_after(3))
        stopped = self.logged_steps()[-1]
        self.assertLess(stopped, LAST_STEP)

        output = self.finish(self.start(), 0)
        self.assertIn(f"continuing {self.out}/run/checkpoint-{stopped} ", output)
        self.assertEqual(self.logged_steps(), list(range(1, LAST_STEP + 1)))
        self.check_result(output)

        state = (self.out / "run/trainer_state.json").stat().st_mtime_ns
        again = self.finish(self.start(), 0)
        self.assertIn(f"nothing left to do: all {LAST_STEP} steps are done", again)
        self.check_result(again)
        self.assertEqual((self.out / "run/trainer_state.json").stat().st_mtime_ns, state)

        fresh = self.finish(self.start("--fresh"), 0)
        self.assertIn("of the run that --fresh has ended", fresh)
        self.assertIn("step 1/", fresh)

    def check_result(self, output):
        self.assertRegex(output, r"evaluation loss \d\.\d+")
        for prompt in ("7 + 5 =", "Once upon a time", "从前有一只小猫"):
            self.assertIn(prompt, output)
        picture = self.out / "run/training_loss.svg"
        self.assertIn(f"the loss as a picture: {picture}", output)
        self.assertTrue(picture.exists())
        self.assertTrue(list((self.out / "run/runs").glob("events.out.tfevents.*")))


class Corpus(unittest.TestCase):
    def make(self, folder):
        subprocess.run([ROOT / "tools/make_corpus.py", folder, "--documents", "3000"], check=True,
                       stdout=subprocess.DEVNULL)
        return [(folder / name).read_bytes() for name in ("train.jsonl", "validation.jsonl")]

    def test_same_bytes_and_no_document_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = self.make(Path(folder) / "a"), self.make(Path(folder) / "b")
        self.assertEqual(first, second)
        train, validation = (data.decode().splitlines() for data in first)
        self.assertEqual(len(train) + len(validation), 3000)
        self.assertEqual(len({*train, *validation}), 3000)
        self.assertGreater(len(validation), 40)


if __name__ == "__main__":
    unittest.main()
