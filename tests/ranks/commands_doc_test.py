# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""docs/commands.md against the program: every command answers --help and has the flags it is said to
have, and no command that answers is left out."""
import re
import subprocess
import unittest

from harness import ENVIRONMENT, ROOT, SKEIN, run_skein

PAGE = (ROOT / "docs/commands.md").read_text()


def sections():
    """Command -> the text of its section."""
    parts = re.split(r"^## `skein (\S+)`$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def examples(text):
    """The `skein …` lines of the code blocks, as lists of words."""
    return [line.split() for line in re.findall(r"^skein .*$", text, flags=re.MULTILINE)]


def help_of(command):
    return run_skein([command, "--help"], ROOT).stdout


class Commands(unittest.TestCase):
    def test_every_section_has_an_example_of_its_command(self):
        self.assertGreaterEqual(len(sections()), 6)
        for command, text in sections().items():
            self.assertTrue(any(words[1] == command for words in examples(text)), command)

    def test_every_example_answers_help(self):
        for command, text in sections().items():
            for words in examples(text):
                verb = [word for word in words[2:3] if word.isalpha()]
                ended = run_skein([words[1], *verb, "--help"], ROOT)
                self.assertIn(f"skein {command}", ended.stdout)
                self.assertEqual(ended.stderr, "")

    def test_flags_are_in_the_help(self):
        for command, text in sections().items():
            known = help_of(command)
            for flag in re.findall(r"^\| `(--[a-z-]+)", text, flags=re.MULTILINE):
                self.assertIn(flag, known, command)

    def test_every_command_that_answers_has_a_section(self):
        overview = run_skein(["--help"], ROOT).stdout
        listed = set(re.findall(r"^  skein ([a-z][a-z-]*) ", overview, flags=re.MULTILINE))
        self.assertGreater(len(listed), 6)
        for command in listed - set(sections()):
            ended = subprocess.run([SKEIN, command, "--help"], env=ENVIRONMENT, cwd=ROOT,
                                   capture_output=True)
            self.assertNotEqual(ended.returncode, 0, f"docs/commands.md lacks {command}")


if __name__ == "__main__":
    unittest.main()
