# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Nobody reads what a run prints, or its terminal stops who writes: it goes on, ends as it would have, and its log
files have every line."""
import os
import pty
import subprocess
import termios
import unittest

from harness import ENVIRONMENT, SKEIN, Workspace, end_of_terminal, finish

STEPS = 800  # lines of 90 bytes: more than a pipe holds


class NobodyReads(unittest.TestCase):
    def setUp(self):
        self.work = Workspace(global_batch_size=4, max_steps=STEPS, output_dir="out")
        self.addCleanup(self.work.__exit__)

    def run_with(self, stderr, *words, stdout=subprocess.DEVNULL, code=0):
        process = subprocess.Popen([SKEIN, *self.work.command(*words, ranks=2)], cwd=self.work.folder,
                                   env=ENVIRONMENT | {"TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, start_new_session=True)
        self.addCleanup(process.kill)
        finish(process, code)

    def check_log(self):
        log = (self.work / "out/logs/training.log").read_text()
        for step in (1, STEPS // 2, STEPS):
            self.assertIn(f" step {step}/{STEPS} ", log)
        self.assertFalse((self.work / "out/.skein-lease").exists())

    def pipe(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        return reader, writer

    def terminal(self):
        """Under Ctrl-S."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        termios.tcflow(slave, termios.TCOOFF)
        return slave

    def test_a_full_pipe(self):
        _, writer = self.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        self.run_with(writer)
        self.check_log()

    def test_a_pipe_that_fills_up(self):
        reader, writer = self.pipe()
        self.run_with(writer)
        self.check_log()
        self.assertIn(b"launch: 2 CPU ranks", os.read(reader, 65536))

    def test_teed_into_a_pipe_that_fills_up(self):
        _, out = self.pipe()
        _, error = self.pipe()
        self.run_with(error, "--tee", "3", stdout=out)
        self.check_log()
        self.assertIn(f"step {STEPS}/{STEPS} ", (self.work / "out/logs/attempt_0/0/stderr.log").read_text())

    def test_a_stopped_terminal(self):
        self.run_with(self.terminal())
        self.check_log()

    def test_a_stopped_terminal_and_a_failure(self):
        """The launcher has something to say too."""
        self.run_with(self.terminal(), "resume_from_checkpoint=nowhere", code=2)


class BackgroundStops(unittest.TestCase):
    """`stty tostop`: whoever writes to the terminal in the background is to be stopped. Ranks are in the background."""

    def test_a_run_goes_on(self):
        with Workspace(global_batch_size=4, max_steps=3) as work:
            pid, terminal = pty.fork()
            if pid == 0:
                attributes = termios.tcgetattr(0)
                attributes[3] |= termios.TOSTOP
                termios.tcsetattr(0, termios.TCSANOW, attributes)
                os.chdir(work.folder)
                os.execve(SKEIN, [str(SKEIN), *work.command("output_dir=out", ranks=2)], ENVIRONMENT)
            code, said = end_of_terminal(pid, terminal)
            self.assertEqual(code, 0, said.decode(errors="replace"))
            self.assertIn(b"step 3/3", said)


if __name__ == "__main__":
    unittest.main()
