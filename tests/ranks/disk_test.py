# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The run's folder: in use, read-only, too small, full for a while; and that of nvme_path, cut."""
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, TIMEOUT, Workspace, children, finish, free_port, kill, run_skein

# In a mount namespace of its own: a small file system at `small`, what is done to it first, then
# skein; what it left is copied to `kept`.
SCRIPT = """
mkdir -p small kept && mount -t tmpfs -o size="$SIZE" tmpfs small || exit 99
eval "$BEFORE"
"$@"
code=$?
cp -a small/. kept/
exit $code
"""


def namespace():
    """The words that make one; none where this user may not."""
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        with Workspace() as work:
            command = [*words, "sh", "-c", "mount -t tmpfs tmpfs ."]
            if shutil.which("unshare") and not subprocess.run(command, cwd=work.folder,
                                                              stderr=subprocess.DEVNULL).returncode:
                return words
    return None


UNSHARE = namespace()


@unittest.skipUnless(UNSHARE, "this user may not mount a file system in a namespace")
class SmallDisk(unittest.TestCase):
    # A checkpoint of the tiny model takes about 460 KiB.

    def setUp(self):
        self.work = Workspace(global_batch_size=8, max_steps=4, save_steps=1, output_dir="small/out")
        self.addCleanup(shutil.rmtree, self.work.folder)

    def run_on(self, size, *words, before="", code=0):
        prefix = [*UNSHARE, "env", f"SIZE={size}", f"BEFORE={before}", "sh", "-c", SCRIPT, "sh"]
        return run_skein(self.work.command(*words, ranks=2), self.work.folder, code, prefix)

    def assert_one_error(self, ended, *parts):
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        message = ended.stderr[ended.stderr.index("error: "):]
        for part in parts:
            self.assertIn(part, message)

    def test_too_small_for_the_first_checkpoint(self):
        ended = self.run_on("256k", code=4)
        self.assert_one_error(ended, "too small for the first checkpoint", "KiB are needed",
                              "KiB are free in", "small", "another output_dir")
        self.assertFalse((self.work / "kept/out/logs").exists(), "a rank was started")

    def test_large_enough_for_the_model_alone(self):
        self.run_on("400k", "save_strategy=no", "report_to=none")
        self.assertTrue((self.work / "kept/out/model.safetensors").exists())

    def test_what_the_start_removes_counts_as_free(self):
        left = "mkdir -p small/out/checkpoint-9.tmp-0badcafe; " \
               "head -c 800k /dev/zero > small/out/checkpoint-9.tmp-0badcafe/x"
        self.run_on("1100k", "save_steps=1000", "report_to=none", before=left)

    def test_read_only(self):
        ended = self.run_on("4m", before="mkdir small/out; mount -o remount,ro small", code=4)
        self.assert_one_error(ended, "small/out", "Read-only file system")

    def test_full_for_a_while(self):
        """Saves fail until somebody makes room; the run, its log and older checkpoints stay whole."""
        steps = ["max_steps=200", "save_steps=20", "save_total_limit=2", "report_to=none"]
        self.work.run(*steps, "output_dir=whole", ranks=2)
        before = "head -c 1300k /dev/zero > small/filler; (" \
                 "while [ $(cat small/out/trainer_log.jsonl 2>/dev/null | wc -l) -lt 70 ]; do sleep 0.01; done; " \
                 "cp -a small/out during; rm small/filler) &"
        ended = self.run_on("2200k", *steps, before=before)
        lost = [line for line in ended.stderr.splitlines() if "was not saved" in line]
        self.assertIn("checkpoint-40 was not saved; training goes on", lost[0])
        self.assertIn("No space left on device", lost[0])
        self.assertEqual(len(lost), len({line.split()[1] for line in lost}), "told twice")
        during = run_skein(["checkpoint", "verify", "during/checkpoint-20"], self.work.folder)
        self.assertNotIn("error", during.stderr)
        for name in ("model.safetensors", "checkpoint-200/optimizer.safetensors"):
            self.assertEqual((self.work / "kept/out" / name).read_bytes(),
                             (self.work / "whole" / name).read_bytes())
        self.assertEqual([r["step"] for r in self.work.records("kept/out")], list(range(1, 201)))
        self.assertEqual([p for p in (self.work / "kept/out").iterdir() if ".tmp-" in p.name], [])

    def test_the_best_model_is_one_that_was_saved(self):
        """The evaluation is best while the disk is full, and gets worse later."""
        (self.work / "other.txt").write_text("ZYXW" * 64)
        before = "head -c 1600k /dev/zero > small/filler; (" \
                 "while [ $(cat small/out/trainer_log.jsonl 2>/dev/null | wc -l) -lt 60 ]; do sleep 0.01; done; " \
                 "rm small/filler) &"
        ended = self.run_on("2400k", "max_steps=100", "save_total_limit=1", "report_to=none", "eval_strategy=steps",
                            "eval_steps=1", "eval_file=other.txt", "load_best_model_at_end=true", before=before)
        self.assertIn("was not saved", ended.stderr)
        lost = {int(line.split()[1].split("-")[1]) for line in ended.stderr.splitlines() if "was not saved" in line}
        losses = {r["step"]: r["eval_loss"] for r in self.work.records("kept/out") if "eval_loss" in r}
        self.assertIn(min(losses, key=losses.get), lost, "the test shows nothing")
        best = min(set(losses) - lost, key=losses.get)
        self.assertIn(f"the best evaluation was at step {best}:", ended.stderr)
        self.assertEqual((self.work / "kept/out/model.safetensors").read_bytes(),
                         (self.work / f"kept/out/checkpoint-{best}/model.safetensors").read_bytes())

    def test_full_to_the_end(self):
        ended = self.run_on("700k", "report_to=none", code=4)
        self.assert_one_error(ended, "the last checkpoint could not be saved")
        self.assertEqual(len(self.work.records("kept/out")), 4)
        run_skein(["checkpoint", "verify", "kept/out/checkpoint-1"], self.work.folder)
        self.assertIn("The model is in small/out", ended.stderr)
        self.assertTrue((self.work / "kept/out/model.safetensors").exists(), "it would have fitted")

    def test_older_checkpoints_make_room(self):
        """Two fit, three are asked for: with save_total_limit the oldest goes first, without it none does."""
        ended = self.run_on("1300k", "report_to=none", "save_total_limit=3")
        self.assertEqual(ended.stderr.count("the disk is full: giving up small/out/checkpoint-"), 2, ended.stderr)
        self.assertNotIn("was not saved", ended.stderr)
        run_skein(["checkpoint", "verify", "kept/out/checkpoint-4"], self.work.folder)
        self.assertFalse((self.work / "kept/out/checkpoint-1").exists())
        shutil.rmtree(self.work / "kept")
        ended = self.run_on("1300k", "report_to=none", code=4)
        self.assertNotIn("giving up", ended.stderr)
        self.assertTrue((self.work / "kept/out/checkpoint-1").exists())


def hung_in_kernel(launcher):
    """It, or a process that it has started for that."""
    tasks = [*Path(f"/proc/{launcher}/task").iterdir(), *(Path(f"/proc/{pid}") for pid in children(launcher))]
    try:
        return any((task / "stat").read_text().rpartition(")")[2].split()[0] == "D" for task in tasks)
    except OSError:
        return False  # one has ended meanwhile


# One write of one rank into HANG_PATH never returns.
HANG = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int hangs(int file) {
  char name[64], path[4096];
  const char *rank = getenv("RANK");
  if (rank == NULL || strcmp(rank, getenv("HANG_RANK")) != 0) return 0;
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  ssize_t size = readlink(name, path, sizeof path - 1);
  path[size < 0 ? 0 : size] = 0;
  return strstr(path, getenv("HANG_PATH")) != NULL && open("hangs", O_WRONLY | O_CREAT | O_EXCL, 0600) >= 0;
}
#define SHIM_OF(name)                                                     \
  ssize_t name(int file, const void *bytes, size_t count, off64_t at) {   \
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, #name); \
    while (hangs(file)) for (;;) pause();                                 \
    return real(file, bytes, count, at);                                  \
  }
SHIM_OF(pwrite)
SHIM_OF(pwrite64)
"""


class HungWrite(unittest.TestCase):
    def test_the_save_is_given_up_and_the_run_goes_on(self):
        """No checkpoint until the write returns, which it never does; the model is written all the same."""
        with Workspace(num_blocks=20, global_batch_size=8, max_steps=12, save_steps=4) as work:
            work.run("output_dir=whole", ranks=2)
            (work / "hang.c").write_text(HANG)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", "hang.so", "hang.c", "-ldl"], cwd=work.folder, check=True)
            for rank in (0, 1):
                with self.subTest(rank=rank):
                    output = f"hung-{rank}"
                    (work / "hangs").unlink(missing_ok=True)
                    process = subprocess.Popen(
                        [SKEIN, *work.command(f"output_dir={output}", "save_timeout=2", ranks=2)], cwd=work.folder,
                        env=ENVIRONMENT | {"LD_PRELOAD": str(work / "hang.so"), "HANG_RANK": str(rank),
                                           "HANG_PATH": "/checkpoint-4.tmp-"},
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                        start_new_session=True)
                    said = finish(process, 4).stderr
                    self.assertTrue((work / "hangs").exists())
                    for step in (4, 8, 12):
                        self.assertEqual(said.count(f"checkpoint-{step} was not saved; training goes on"), 1, said)
                    self.assertIn(f"rank {rank}'s write of checkpoint-4 has not returned", said)
                    self.assertIn(f"The model is in {output}", said)
                    self.assertEqual((work / output / "model.safetensors").read_bytes(),
                                     (work / "whole/model.safetensors").read_bytes())


@unittest.skipIf(os.geteuid() != 0, "a file system needs root")
class FrozenDisk(unittest.TestCase):
    """Who writes there hangs in the kernel, where no signal ends it."""

    def setUp(self):
        self.work = Workspace(output_dir="disk/out")
        self.addCleanup(self.work.__exit__)
        self.disk = self.work / "disk"
        self.disk.mkdir()
        image = self.work / "image"
        image.write_bytes(b"")
        os.truncate(image, 16 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.disk], check=True)

    def start_head(self):
        head = self.work.start("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1",
                               f"--master-port={free_port()}", ranks=1)
        self.addCleanup(head.kill)
        return head

    def stop_when_hung(self, head):
        """Returns what it says to the end."""
        subprocess.run(["fsfreeze", "--freeze", self.disk], check=True)
        try:
            while not hung_in_kernel(head.pid):
                self.assertIsNone(head.poll())
                time.sleep(0.1)
            head.send_signal(signal.SIGTERM)
            head.wait(TIMEOUT)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self.disk], check=True)
        return finish(head, 75).stderr

    def test_a_launcher_that_waits_for_others_ends(self):
        """Hung with the next beat of its lease."""
        head = self.start_head()
        while line := head.stderr.readline():
            if "waiting for node 1 of 2 nodes" in line:
                break
        self.assertIn("the lease of disk/out stays: its disk has not answered", self.stop_when_hung(head))
        self.work.run("max_steps=1", ranks=1)

    def test_a_launcher_that_begins_ends(self):
        """Hung as soon as it tries the folder, or with the next beat."""
        head = self.start_head()
        while not (self.disk / "out/.skein-node-token").exists():
            self.assertIsNone(head.poll())
            time.sleep(0.001)
        self.assertIn("stopped before", self.stop_when_hung(head))


class LimitOnFileSizes(unittest.TestCase):
    def test_it_is_said_by_every_command_that_writes(self):
        with Workspace(num_blocks=200, max_steps=1, output_dir="out") as work:
            work.run()
            for command in (("export", "out", "--out", "new"),
                            ("data", "prepare", "c.yaml", "data_cache_dir=new"),
                            ("tokenizer", "train", "--input", "text.txt", "--vocab-size", "512", "--out", "new")):
                with self.subTest(command=command):
                    ended = run_skein(command, work.folder, 4, ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"])
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                    self.assertIn("File too large", ended.stderr)
                    self.assertEqual(list(work.folder.glob("new.tmp-*")), [])


class CutWhileTraining(unittest.TestCase):
    """The file that holds what is offloaded has no name, but who may look into /proc can cut it."""

    def test_it_is_named_and_the_same_command_goes_on(self):
        for words in ([], ["distributed_strategy=zero3", "offload_param=nvme"]):
            with self.subTest(words), Workspace(global_batch_size=8, max_steps=100000, save_steps=5,
                                                save_total_limit=1, output_dir="out") as work:
                run = work.start("offload_optimizer=nvme", "nvme_path=.", *words, ranks=2)
                work.wait_for_step(run, "out", 12)
                file, name = spill_file(children(run.pid), work.folder)
                os.truncate(file, 4096)
                ended = finish(run, 4)
                self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                message = ended.stderr[ended.stderr.index("error: "):]
                self.assertIn(name, message)
                self.assertIn("it was cut short while in use; what it held is lost: start the run again", message)
                again = work.run("offload_optimizer=nvme", "nvme_path=.", *words, "max_steps=40", ranks=2)
                self.assertRegex(again.stderr, r"at step \d+ of 40")


def spill_file(pids, folder):
    """(its path in /proc, its name) of the first that one of these processes has open in the folder."""
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            name, _, deleted = os.readlink(link).rpartition(" (deleted)")
            if deleted == "" and name.startswith(f"{folder}/"):
                return link, name
    raise AssertionError(f"{pids} have no file without a name in {folder}")


class InUse(unittest.TestCase):
    def test_one_folder_one_run(self):
        with Workspace(global_batch_size=8, max_steps=100000, output_dir="out") as work:
            first = work.start(ranks=2)
            work.wait_for_step(first, "out", 3)
            ended = work.run(ranks=1, code=2)
            self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
            self.assertRegex(ended.stderr, rf"out is in use by the run on host \S+, pid {first.pid}, since ")
            self.assertIn("give another output_dir", ended.stderr)
            self.assertIsNone(first.poll())
            kill([first.pid])
            finish(first)
            work.run("max_steps=5", ranks=2)
            self.assertFalse((work / "out/.skein-lease").exists())


if __name__ == "__main__":
    unittest.main()
