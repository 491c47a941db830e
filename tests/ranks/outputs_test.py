# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Where what the ranks print goes: --tee, --redirects, --log-dir, --local-ranks-filter, error files."""
import json
import shutil
import unittest

from harness import Workspace, children, finish, kill


class Outputs(unittest.TestCase):
    def setUp(self):
        self.work = Workspace(global_batch_size=8, max_steps=3, output_dir="out")
        self.addCleanup(shutil.rmtree, self.work.folder)

    def text(self, name):
        return (self.work / name).read_text()

    def test_teed(self):
        ended = self.work.run("--tee", "3", ranks=2)
        self.assertIn("[rank 0] step 3/3", ended.stderr)
        written = self.text("out/logs/attempt_0/0/stderr.log")
        self.assertIn("step 3/3", written)
        self.assertNotIn("[rank 0]", written)

    def test_redirected(self):
        ended = self.work.run("--redirects", "3", "--log-dir", "here", ranks=2)
        self.assertNotIn("step 3/3", ended.stderr)
        self.assertIn("step 3/3", self.text("here/attempt_0/0/stderr.log"))

    def test_filtered(self):
        ended = self.work.run("--local-ranks-filter", "1", ranks=2)
        self.assertNotIn("step 3/3", ended.stderr)

    def test_nothing_asked_makes_no_files(self):
        self.work.run(ranks=2)
        self.assertEqual(sorted(p.name for p in (self.work / "out/logs").iterdir()),
                         ["rank-0.log", "rank-1.log", "training.log"])

    def test_an_error_that_nobody_saw_is_told(self):
        ended = self.work.run("learning_rate=1e30", "max_grad_norm=0", "lr_scheduler_type=constant", "--redirects", "3",
                              ranks=2, code=2)  # the weights are ruined in one step
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        written = json.loads(self.text("out/logs/attempt_0/0/error.json"))["message"]
        self.assertIn(written["message"], ended.stderr)
        self.assertIn("out/logs/attempt_0/", ended.stderr)
        self.assertTrue(written["extraInfo"]["timestamp"].isdigit())

    def test_a_killed_rank_is_reported_with_its_log(self):
        process = self.work.start("max_steps=100000", "save_steps=2", "--redirects", "1:3", ranks=2)
        self.work.wait_for_step(process, "out", 5)
        ranks = children(process.pid)
        kill(ranks[1:])
        ended = finish(process, code=1)
        self.assertRegex(ended.stderr, rf"error: launch: rank 1 of 2 on \S+ \(pid {ranks[1]}\) was killed by SIGKILL ")
        for part in ("  saved         out/checkpoint-", "  logs          out/logs/attempt_0/1/stderr.log",
                     "  to continue   skein train c.yaml max_steps=100000 save_steps=2"):
            self.assertIn(part, ended.stderr)


if __name__ == "__main__":
    unittest.main()
