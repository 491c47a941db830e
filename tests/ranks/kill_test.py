# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Six kinds of death, each at one instant: the run goes on to the bytes of an undisturbed one.
`make faults` draws many more."""
import unittest

from kills import Fault, Scene


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scene = Scene()

    @classmethod
    def tearDownClass(cls):
        cls.scene.__exit__()

    def check(self, kind, step, strategy="zero2", victim=0, way="again"):
        result = self.scene.play(Fault(kind=kind, ranks=2, strategy=strategy, step=step,
                                       victim=victim, way=way))
        self.assertEqual(result.problems, [], result.stderr)

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


if __name__ == "__main__":
    unittest.main()
