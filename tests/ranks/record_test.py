# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Whose is what lies in an output folder: what is continued, counted, set aside, removed, or refused."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import Workspace, children, finish, kill, run_skein

# Opening a file whose path ends in $STALE_PATH fails with ESTALE, the first $STALE_TIMES times in each process.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
static int refused(const char* path) {
  static int times = -1;
  const char* end = getenv("STALE_PATH");
  if (times < 0) times = atoi(getenv("STALE_TIMES"));
  size_t all = strlen(path), some = strlen(end);
  if (all < some || strcmp(path + all - some, end) != 0 || times == 0) return 0;
  --times;
  errno = ESTALE;
  return 1;
}
#define SHIM_OF(name)                                                            \
  int name(const char* path, int flags, ...) {                                   \
    int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, #name);                \
    va_list rest;                                                                \
    va_start(rest, flags);                                                       \
    int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;          \
    va_end(rest);                                                                \
    return refused(path) ? -1 : real(path, flags, mode);                         \
  }
#define SHIM_AT_OF(name)                                                         \
  int name(int folder, const char* path, int flags, ...) {                       \
    int (*real)(int, const char*, int, ...) = dlsym(RTLD_NEXT, #name);           \
    va_list rest;                                                                \
    va_start(rest, flags);                                                       \
    int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;          \
    va_end(rest);                                                                \
    return refused(path) ? -1 : real(folder, path, flags, mode);                 \
  }
SHIM_OF(open)
SHIM_OF(open64)
SHIM_AT_OF(openat)
SHIM_AT_OF(openat64)
"""


def workspace(**keys):
    return Workspace(num_blocks=20, global_batch_size=8, max_steps=6, save_steps=2, output_dir="out", **keys)


def checkpoints(work, output="out"):
    return sorted(path.name for path in (work / output).glob("checkpoint-*"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 0x10
    path.write_bytes(data)


class Case(unittest.TestCase):
    def setUp(self):
        self.work = workspace()
        self.addCleanup(shutil.rmtree, self.work.folder)


class RollBack(Case):
    def test_the_next_start_does_not_follow_the_branch_that_was_left(self):
        self.work.run(ranks=2)
        process = self.work.start("resume_from_checkpoint=out/checkpoint-2", "max_steps=100000",
                                  "save_steps=100000", ranks=2)
        # A step that the run before did not make: what a start writes down is then written.
        self.work.wait_for_step(process, "out", 10)
        kill([process.pid, *children(process.pid)])
        finish(process)
        names = checkpoints(self.work)
        self.assertEqual([name.split(".")[0] for name in names], ["checkpoint-2", "checkpoint-4", "checkpoint-6"])
        self.assertEqual(sum(".aside-" in name for name in names), 2)
        ended = self.work.run(ranks=2)
        self.assertIn("continuing out/checkpoint-2 at step 2", ended.stderr)
        self.assertIn("max_steps: 100000 → 6", ended.stderr)

    def test_a_requeue_does_not_go_back_to_the_beginning(self):
        self.work.run("output_dir=base", ranks=2)
        command = ("resume_from_checkpoint=base/checkpoint-2", "max_steps=8")
        self.work.run(*command, ranks=2)
        shutil.rmtree(self.work / "out/checkpoint-8")  # as if killed after step 6
        ended = self.work.run(*command, ranks=2)
        self.assertIn("continuing out/checkpoint-6 at step 6", ended.stderr)


    def test_a_beginning_that_was_left_is_one_again(self):
        for words in ((), ("resume_from_checkpoint=out/checkpoint-4",), ("resume_from_checkpoint=out/checkpoint-2",)):
            self.work.run(*words, ranks=1)
        ended = self.work.run("resume_from_checkpoint=out/checkpoint-4", ranks=1)
        self.assertIn("out/checkpoint-4 at step 4", ended.stderr)
        self.assertNotIn("has gone on since", ended.stderr)


class NothingToContinue(Case):
    def test_damaged_ones_alone(self):
        self.work.run(ranks=2)
        for step in (2, 4, 6):
            flip(self.work / f"out/checkpoint-{step}/model.safetensors")
        ended = self.work.run(ranks=2, code=4)
        self.assertIn("checkpoint-6, checkpoint-4, checkpoint-2", ended.stderr)
        self.assertIn("--fresh", ended.stderr)
        self.work.run("--fresh", ranks=2)
        self.assertEqual(checkpoints(self.work), ["checkpoint-2", "checkpoint-4", "checkpoint-6"])

    def test_a_disk_that_does_not_answer(self):
        (self.work / "shim.c").write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=self.work.folder, check=True)
        self.work.run(ranks=2)
        before = {name: (self.work / "out" / name / "manifest.json").stat().st_ino for name in checkpoints(self.work)}

        def start(path, times, code):
            prefix = ("env", f"LD_PRELOAD={self.work.folder}/shim.so", f"STALE_PATH={path}", f"STALE_TIMES={times}")
            return run_skein(self.work.command("save_total_limit=1", ranks=2), self.work.folder, code, prefix).stderr
        said = start("checkpoint-6/model.safetensors", 1000, 4)
        self.assertIn("Stale file handle", said)
        self.assertIn("start again", said)
        self.assertEqual(before, {name: (self.work / "out" / name / "manifest.json").stat().st_ino
                                  for name in checkpoints(self.work)})
        self.assertIn("continuing out/checkpoint-6", start("checkpoint-6/model.safetensors", 1, 0))


class Restart(Case):
    def test_it_goes_on_whatever_the_run_was_to_begin_with(self):
        self.work.run("output_dir=base", ranks=2)
        for wish in ("resume_from_checkpoint=false", "--fresh", "resume_from_checkpoint=base/checkpoint-2"):
            with self.subTest(wish):
                shutil.rmtree(self.work / "out", ignore_errors=True)
                process = self.work.start(wish, "max_steps=200", "--max-restarts", "1", ranks=2)
                self.work.wait_for_step(process, "out", 20)
                kill(children(process.pid)[:1])
                self.assertIn("continuing out/checkpoint-", finish(process, 0).stderr)

    def test_a_stop_after_it_says_what_continues(self):
        """Not the same command, which would remove what was just saved."""
        process = self.work.start("--fresh", "max_steps=100000", "--max-restarts", "1", ranks=2)
        self.work.wait_for_step(process, "out", 20)
        kill(children(process.pid)[:1])
        record = self.work / "out/.skein-run"
        while len(json.loads(record.read_text())["starts"]) < 2 and process.poll() is None:
            time.sleep(0.01)
        self.work.wait_for_step(process, "out", 20)
        process.send_signal(signal.SIGTERM)
        self.assertRegex(finish(process, 75).stderr, r"stopped after step \d+; the same command without --fresh continues")


class NamedBeginning(Case):
    def test_it_goes_on_in_any_spelling_and_when_the_beginning_is_gone(self):
        self.work.run(ranks=1)
        shutil.copytree(self.work / "out/checkpoint-4", self.work / "c4")
        (self.work / "here").symlink_to(".")
        begun = self.work.run("output_dir=r", "resume_from_checkpoint=c4", ranks=1).stderr
        self.assertIn("at step 4 of 6", begun)
        for steps, spelling in ((8, "c4/"), (10, "here/c4")):
            said = self.work.run("output_dir=r", f"resume_from_checkpoint={spelling}", f"max_steps={steps}", ranks=1).stderr
            self.assertIn(f"continuing r/checkpoint-{steps - 2}", said)
        shutil.rmtree(self.work / "c4")
        said = self.work.run("output_dir=r", "resume_from_checkpoint=c4", "max_steps=12", ranks=1).stderr
        self.assertIn("continuing r/checkpoint-10", said)
        self.assertEqual([name for name in checkpoints(self.work, "r") if "aside" in name], [])


class Fresh(Case):
    def test_cut_off_while_it_removes_it_has_ended_the_old_run(self):
        self.work.run(ranks=1)
        record = json.loads((self.work / "out/.skein-run").read_text())
        new = record["starts"][0] | {"token": "0badcafe"}
        removing = {"starts": [record["starts"][0]["token"]], "files": record["files"]}
        (self.work / "out/.skein-run").write_text(json.dumps(record | {"starts": [new], "files": [], "removing": removing}))
        (self.work / "out/trainer_log.jsonl").unlink()  # so far it came
        ended = self.work.run("learning_rate=0.005", ranks=1)
        self.assertNotIn("nothing left", ended.stderr)
        self.assertIn("checkpoint-6, of the run that --fresh has ended", ended.stderr)
        self.work.run("learning_rate=0.005", "output_dir=whole", ranks=1)
        self.assertEqual((self.work / "out/model.safetensors").read_bytes(),
                         (self.work / "whole/model.safetensors").read_bytes())


    def test_what_a_start_names_is_not_removed(self):
        """The rescue after a --fresh that was a mistake, and was killed."""
        self.work.run(ranks=1)
        record = json.loads((self.work / "out/.skein-run").read_text())
        new = record["starts"][0] | {"token": "0badcafe"}
        removing = {"starts": [record["starts"][0]["token"]], "files": record["files"]}
        (self.work / "out/.skein-run").write_text(json.dumps(record | {"starts": [new], "files": [], "removing": removing}))
        ended = self.work.run("resume_from_checkpoint=out/checkpoint-6", "max_steps=8", ranks=1)
        self.assertIn("a --fresh that was cut off is taken back", ended.stderr)
        self.assertEqual(checkpoints(self.work), [f"checkpoint-{step}" for step in (2, 4, 6, 8)])
        self.assertIn("continuing out/checkpoint-8", self.work.run("max_steps=10", ranks=1).stderr)

    @unittest.skipIf(os.geteuid() != 0, "a mount needs root")
    def test_a_mount_of_the_folder_is_the_folder(self):
        self.work.run(ranks=1)
        (self.work / "mnt").mkdir()
        for source, named in (("out", "mnt/checkpoint-6"), ("out/checkpoint-6", "mnt")):
            prefix = ("unshare", "--mount", "sh", "-c", f'mount --bind {source} mnt && exec "$@"', "sh")
            command = self.work.command("--fresh", f"resume_from_checkpoint={named}", "max_steps=8", ranks=1)
            said = run_skein(command, self.work.folder, code=2, prefix=prefix).stderr
            self.assertIn("--fresh would remove", said)
        self.assertEqual(checkpoints(self.work), ["checkpoint-2", "checkpoint-4", "checkpoint-6"])


class DeletedRecord(Case):
    def test_the_run_goes_on_and_is_continued(self):
        process = self.work.start("max_steps=60", "save_steps=20", ranks=1)
        self.work.wait_for_step(process, "out", 25)
        (self.work / "out/.skein-run").unlink()
        finish(process, 0)
        self.assertIn("continuing out/checkpoint-60", self.work.run("max_steps=62", ranks=1).stderr)


class FinalModel(Case):
    def test_one_that_is_gone_or_damaged_is_written_again(self):
        self.work.run(ranks=2)
        model = self.work / "out/model.safetensors"
        whole = model.read_bytes()
        for broken in (None, whole[:-1]):
            model.unlink()
            if broken:
                model.write_bytes(broken)
            self.assertNotIn("nothing left", self.work.run(ranks=2).stderr)
            self.assertEqual(model.read_bytes(), whole)
        self.assertIn("nothing left", self.work.run(ranks=2).stderr)


class Strangers(Case):
    def test_another_programs_checkpoint_is_not_counted_or_removed(self):
        for step in (1, 4, 500):
            (self.work / f"out/checkpoint-{step}").mkdir(parents=True)
            (self.work / f"out/checkpoint-{step}/optimizer.pt").write_text("theirs")
        self.assertIn("checkpoint-500", self.work.run(ranks=2, code=4).stderr)
        shutil.move(self.work / "out", self.work / "theirs")
        self.work.run("max_steps=2", ranks=2)
        for step in (1, 4, 500):
            shutil.move(self.work / f"theirs/checkpoint-{step}", self.work / "out")
        ended = self.work.run("save_total_limit=1", ranks=2)
        self.assertIn("continuing out/checkpoint-2", ended.stderr)
        self.assertIn("checkpoint-4 is not a checkpoint of this run", ended.stderr)
        left = checkpoints(self.work)
        self.assertEqual([name.split(".")[0] for name in left],
                         ["checkpoint-1", "checkpoint-4", "checkpoint-500", "checkpoint-6"])
        for name in left[:3]:
            self.assertEqual((self.work / "out" / name / "optimizer.pt").read_text(), "theirs")


class OwnFiles(Case):
    def test_fresh_removes_what_the_record_lists(self):
        self.work.run("report_to=all", ranks=2)
        record = json.loads((self.work / "out/.skein-run").read_text())
        self.assertEqual(len(record["starts"]), 1)
        for folder in ("runs", "wandb"):
            (self.work / "out" / folder / "mine.txt").write_text("x")
        self.work.run("--fresh", "max_steps=2", "report_to=none", ranks=2)
        for folder in ("runs", "wandb"):
            self.assertEqual([path.name for path in (self.work / "out" / folder).iterdir()], ["mine.txt"])
        self.assertEqual(checkpoints(self.work), ["checkpoint-2"])

    def test_the_models_folder(self):
        before = (self.work / "model/config.json").read_bytes()
        self.assertIn("are the same folder", self.work.run("output_dir=model", ranks=2, code=2).stderr)
        self.assertEqual((self.work / "model/config.json").read_bytes(), before)

    def test_a_config_beside_the_run(self):
        (self.work / "c.yaml").rename(self.work / "config.yaml")
        mine = (self.work / "config.yaml").read_bytes()
        ended = run_skein(["train", "config.yaml", "output_dir=.", "--nproc-per-node", "1"], self.work.folder)
        self.assertIn("skein-config.yaml", ended.stderr)
        self.assertEqual((self.work / "config.yaml").read_bytes(), mine)

    def test_a_home_folder(self):
        home = self.work / "home"
        home.mkdir()
        run_skein(self.work.command("output_dir=~/a", ranks=1), self.work.folder, prefix=("env", f"HOME={home}"))
        self.assertTrue((home / "a/model.safetensors").exists())
        self.assertFalse((self.work / "~").exists())


if __name__ == "__main__":
    unittest.main()
