# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The program as a user meets it: exit codes, and one message for one mistake."""
import json
import os
import shlex
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from harness import (ENVIRONMENT, SKEIN, TIMEOUT, Workspace, children, finish, kill, llama, run_skein,
                     wait_until_gone)

STACK = ("terminate called", "what():", "frame #", "Traceback", "c10::", ".h:", ".cpp:")


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=2, global_batch_size=8, output_dir="out")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def check(self, arguments, *says, code=2):
        """Fails with that code and exactly one error, which says all of `says`; nothing on stdout."""
        ended = run_skein(arguments, self.work.folder, code)
        self.assertEqual(ended.stdout, "")
        self.assert_one_error(ended.stderr, *says)
        return ended

    def assert_one_error(self, stderr, *says):
        self.assertEqual(stderr.count("error: "), 1, stderr)
        message = stderr[stderr.index("error: "):]
        for words in says:
            self.assertIn(words, message)
        # Where a rank's last call stands in the source is no stack.
        plain = "\n".join(line for line in stderr.splitlines() if "call #" not in line)
        for words in STACK:
            self.assertNotIn(words, plain)

    def check_train(self, words, *says, code=2, ranks=2):
        self.check(self.work.command(*words, ranks=ranks), *says, code=code)


class Words(Command):
    """Mistakes that the command line and the recipe alone show."""

    def test_help(self):
        for words in ([], ["--help"], ["help"]):
            ended = run_skein(words, self.work.folder)
            self.assertIn("skein train CONFIG.yaml", ended.stdout)
            self.assertEqual(ended.stderr, "")

    def test_help_of_train(self):
        ended = run_skein(["train", "--help"], self.work.folder)
        self.assertIn("--nproc-per-node", ended.stdout)
        self.assertEqual(ended.stderr, "")

    def test_version(self):
        ended = run_skein(["--version"], self.work.folder)
        self.assertRegex(ended.stdout, r"^skein \d+\.\d+\.\d+\n$")
        self.assertEqual(ended.stderr, "")

    def test_unknown_command(self):
        self.check(["trian", "c.yaml"], "trian", "did you mean 'train'", "skein --help")

    def test_what_is_a_key_and_no_command(self):
        self.check(["sft", "c.yaml"], "no command 'sft': type `skein train CONFIG.yaml stage=sft`")
        self.check(["lora"], "finetuning_type=lora")

    def test_all_unknown_keys_at_once(self):
        self.work.write_recipe(self.work.keys | {"lerning_rate": 1, "colour": "red"}, name="typos.yaml")
        self.check(["train", "typos.yaml", "shape=round"], "did you mean 'learning_rate'", "'colour'", "'shape'")
        self.check(["train", "c.yaml", "--colour", "red", "--shape=round"], "--colour", "--shape")

    def test_a_conversation_that_is_not_there(self):
        for words in ([], ["--messages", "-"]):
            self.check(["template", "render", "model", "--template", "chatml", *words], "no conversation on stdin",
                       "--messages FILE")

    def test_messages_are_read_as_rows_are(self):
        def render(name, messages, *words):
            (self.work / name).write_text(json.dumps(messages))
            return ["template", "render", "model", "--template", "chatml", "--messages", name, *words]
        asked = run_skein(render("a.json", {"conversations": [{"from": "human", "value": "Hi"}], "system": "S"}),
                          self.work.folder)
        self.assertEqual(asked.stdout, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n")
        odd = [{"role": "visitor", "content": "Hi"}]
        self.check(render("b.json", odd), 'b.json: message 1: its role is "visitor"')
        shown = run_skein(render("b.json", odd, "--as-is"), self.work.folder)
        self.assertEqual(shown.stdout, "<|im_start|>visitor\nHi<|im_end|>\n")
        self.check(render("b.json", odd, "--as-is", "--tokens"), "--as-is shows the text alone")
        self.check(render("c.json", {"text": "t"}), "c.json: expected a list of messages")

    def test_misspelt_key(self):
        self.check_train(["max_stpes=3"], "command line", "max_stpes", "did you mean 'max_steps'")

    def test_misspelt_key_in_the_recipe(self):
        self.work.write_recipe(self.work.keys | {"lerning_rate": 1}, name="typo.yaml")
        line = len(self.work.keys) + 1
        self.check(["train", "typo.yaml"], f"typo.yaml:{line}:1", "did you mean 'learning_rate'")

    def test_misspelt_flag(self):
        self.check(["train", "c.yaml", "--nproc-pre-node", "2"], "command line", "pre")

    def test_missing_recipe(self):
        self.check(["train", "nowhere.yaml"], "nowhere.yaml", "does not exist")

    def test_what_must_be_given(self):
        for key in ("model_name_or_path", "train_file", "output_dir"):
            with self.subTest(key=key):
                self.check_train([f"{key}="], "needs", key)

    def test_batch_that_does_not_multiply(self):
        self.check_train(["per_device_train_batch_size=3", "gradient_accumulation_steps=2"],
                         "do not multiply", "c.yaml:", "ways to close it", "global_batch_size=12")

    def test_no_gpu(self):
        if list(Path("/dev").glob("nvidia[0-9]*")):
            words, says = ["--nproc-per-node", "99"], "99"
        else:
            words, says = ["--nproc-per-node", "2"], "no GPU is visible"
        self.check(["train", "c.yaml", "device=cuda", *words], says)

    def test_nothing_is_written_before_the_check(self):
        self.check_train(["max_stpes=3", "output_dir=early"], "max_stpes")
        self.assertFalse((self.work / "early").exists())


class Files(Command):
    """Mistakes that the ranks find: still told once."""

    def test_missing_model(self):
        self.check_train(["model_name_or_path=nowhere"], "nowhere", "config.json")

    def test_model_without_weights(self):
        self.check_train(["train_from_scratch=false"], "model", "model.safetensors")

    def test_broken_model_config(self):
        self.work.write_model({}, name="broken")
        (self.work / "broken/config.json").write_text('{"model_type": "llama",')
        self.check_train(["model_name_or_path=broken"], "broken/config.json")

    def test_missing_data(self):
        self.check_train(["train_file=nowhere.txt"], "train_file", "nowhere.txt", "does not exist")

    def test_empty_data(self):
        (self.work / "empty.txt").write_text("")
        self.check_train(["train_file=empty.txt"], "empty.txt", "holds no data", code=4)

    def test_data_of_unknown_kind(self):
        (self.work / "text.csv").write_text("a,b\n")
        self.check_train(["train_file=text.csv"], "text.csv", ".jsonl")

    def test_broken_jsonl(self):
        (self.work / "broken.jsonl").write_text('{"text": "one"}\n{"text": \n')
        self.check_train(["train_file=broken.jsonl"], "broken.jsonl", "2", code=4)

    def test_small_vocabulary(self):
        self.work.write_model(llama(vocab_size=100), name="small")
        self.check_train(["model_name_or_path=small"], "vocab_size is 100", "257")

    def test_a_file_in_place_of_the_output_folder(self):
        (self.work / "taken").write_text("")
        self.check_train(["output_dir=taken"], "taken", code=4)
        self.check_train(["output_dir=taken/below"], "taken/below", code=4)

    def test_no_place_for_the_log(self):
        (self.work / "blocked/trainer_log.jsonl").mkdir(parents=True)
        self.check_train(["output_dir=blocked"], "blocked holds trainer_log.jsonl")

    def test_one_rank_says_it_alike(self):
        self.check_train(["train_file=nowhere.txt"], "nowhere.txt", ranks=1)


class Deaths(Command):
    def start(self, output):
        process = self.work.start(f"output_dir={output}", "max_steps=100000", "save_steps=100000",
                                  ranks=2)
        self.addCleanup(process.kill)
        self.work.wait_for_step(process, output, 3)
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        return process, ranks

    def test_rank_killed(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                process, ranks = self.start(f"victim-{victim}")
                kill([ranks[victim]])
                ended = finish(process, code=1)
                self.assertEqual(ended.stdout, "")
                self.assert_one_error(ended.stderr, f"rank {victim} of 2", "killed by SIGKILL")
                self.assertEqual(wait_until_gone(ranks, seconds=0), [])

    def test_launcher_killed(self):
        process, ranks = self.start("orphans")
        process.kill()
        finish(process)
        self.assertEqual(wait_until_gone(ranks), [])

    def test_interrupted_twice(self):
        process, ranks = self.start("twice")
        os.kill(ranks[0], signal.SIGSTOP)  # so that the first request cannot be answered
        process.send_signal(signal.SIGINT)
        while "Ctrl-C again" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        ended = finish(process, code=130)
        self.assert_one_error(ended.stderr, "interrupted twice")
        self.assertEqual(wait_until_gone(ranks, seconds=0), [])

class Streams(Command):
    """A run does not depend on those who watch it."""

    def run_by_shell(self, ending, output):
        command = self.work.command(f"output_dir={output}", "max_steps=8", "save_steps=4", ranks=2)
        words = " ".join(map(shlex.quote, [str(SKEIN), *command]))
        subprocess.run(["bash", "-c", f"{words} {ending}"], cwd=self.work.folder, env=ENVIRONMENT,
                       timeout=TIMEOUT, capture_output=True)
        self.assertEqual((self.work / output / "latest").readlink().name, "checkpoint-8")
        self.assertTrue((self.work / output / "model.safetensors").exists())

    def test_the_reader_goes_away(self):
        self.run_by_shell("2>&1 | head -1", "left")

    def test_all_streams_are_closed(self):
        self.run_by_shell("0<&- 1>&- 2>&-", "closed")


if __name__ == "__main__":
    unittest.main()
