# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Six kinds of death, each at one instant: the run goes on to the bytes of an undisturbed one, wherever its
states lie and in however few bytes. `make faults` draws many more."""
import unittest

from harness import sample
from kills import Fault, Scene

NVME = ("offload_optimizer=nvme", "nvme_path=.")


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scene = Scene()

    @classmethod
    def tearDownClass(cls):
        cls.scene.__exit__()

    def check(self, kind, step, strategy="zero2", victim=0, way="again", words=()):
        result = self.scene.play(Fault(kind=kind, ranks=2, strategy=strategy, step=step,
                                       victim=victim, way=way, words=words))
        self.assertEqual(result.problems, [], result.stderr)
        return result

    def test_a_rank(self):
        self.check("rank", step=30, victim=1)

    def test_rank_0_and_restarted(self):
        self.check("rank 0", step=13, strategy="zero3", way="restart")

    def test_the_launcher(self):
        self.check("launcher", step=21)

    def test_all_at_once(self):
        self.check("all", step=40, strategy="zero3")

    def test_asked_to_stop(self):
        self.check("SIGTERM", step=26)

    def test_stopped_for_good_and_restarted(self):
        self.check("SIGSTOP", step=18, victim=1, way="restart")

    def test_with_states_on_a_disk(self):
        result = self.check("all", step=22, words=NVME)
        self.assertIn("optimizer states on nvme_path", result.stderr)
        self.assertEqual([path.name for path in self.scene.work.folder.iterdir() if "spill" in path.name], [])

    def test_with_a_loss_scale_and_in_fewer_bytes(self):
        """Whose scale and moments in 8 bits are continued too."""
        cases = [("rank", 14, "zero3", (*NVME, "offload_param=nvme", "fp16=true")),
                 ("all", 31, "zero1", ("offload_optimizer=cpu", "fp16=true")),
                 ("rank", 14, "zero3", (*NVME, "offload_param=nvme", "optim=adamw_8bit")),
                 ("all", 31, "ddp", (*NVME, "optim=adamw_8bit", "fp16=true"))]
        for kind, step, strategy, words in sample(cases, 2):
            with self.subTest(words=words):
                self.check(kind, step, strategy, victim=1 if kind == "rank" else 0, words=words)


if __name__ == "__main__":
    unittest.main()
