# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A request to stop is heard at any instant: exit code 75, what there is to save is saved, the lease is given back."""
import fcntl
import os
import pty
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from harness import (CACHE, ENVIRONMENT, SKEIN, Workspace, children, end_of_terminal, finish, free_port, run_skein,
                     wait_until_gone)
from stop_scene import STEPS, Stops, takes_stops, wait_for_main


class AnyInstant(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stops = Stops()
        cls.addClassCleanup(cls.stops.__exit__)

    def test_drawn_instants(self):
        """`make faults` draws many more."""
        seed = os.environ.get("SKEIN_SEED", "0")
        for k, instant in enumerate(self.stops.instants(4, seed)):
            code, problems = self.stops.play(f"drawn-{k}", instant, all_of_it=k % 2 == 1)
            self.assertEqual(problems, [], f"SKEIN_SEED={seed}, after {instant:.3f} s, code {code}")

    def test_asked_again_and_again(self):
        """Until the process is gone: neither its beginning nor its last instant is a death by signal."""
        code, problems = self.stops.play("often", 0.0, every=0.0005)
        self.assertEqual((code, problems), (75, []))

    def test_asked_when_all_is_done(self):
        for name, ranks in (("late", 1), ("late-2", 2)):
            process = self.stops.work.start(f"output_dir={name}", ranks=ranks)
            while "done:" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            while process.poll() is None:
                process.send_signal(signal.SIGTERM)
                time.sleep(0.0005)
            self.assertIn(process.returncode, (0, 75))
            self.assertEqual(len([r for r in self.stops.work.records(name) if "loss" in r]), STEPS)
            process.communicate()


class Preparation(unittest.TestCase):
    """A run that waits for its data: another process prepares it, and never ends."""

    def setUp(self):
        self.work = Workspace(global_batch_size=8, max_steps=2, output_dir="out", seed=3)
        self.addCleanup(self.work.__exit__)
        self.work.write_text(38, seed=os.urandom(8).hex())
        known = set(Path(CACHE.name).rglob("*.tokens"))
        run_skein(["data", "prepare", "c.yaml"], self.work.folder)
        (tokens,) = set(Path(CACHE.name).rglob("*.tokens")) - known
        tokens.unlink()
        self.lock = tokens.with_suffix(".lock").open("w")
        self.addCleanup(self.lock.close)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def start(self, prefix=()):
        process = subprocess.Popen([*prefix, SKEIN, *self.work.command(ranks=2)], cwd=self.work.folder, env=ENVIRONMENT,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        said = ""
        while "waiting for it" not in said:
            line = process.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return process

    def check_stopped(self, process):
        ended = finish(process, 75)
        self.assertIn("stopped before the run began", ended.stderr)
        self.assertFalse((self.work / "out/.skein-lease").exists())

    def test_every_signal_that_asks(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            process = self.start()
            self.assertTrue((self.work / "out/.skein-lease").exists())
            process.send_signal(number)
            self.check_stopped(process)

    @unittest.skipIf(os.geteuid() != 0, "a process namespace needs root")
    def test_as_process_1(self):
        """Of a container: the kernel spares it what it does not handle."""
        process = self.start(prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        (inner,) = children(process.pid)
        os.kill(inner, signal.SIGTERM)
        self.check_stopped(process)


# A disk that does not answer: opening HANG_PATH never ends, from the moment that HANG_SINCE is there.
HANG = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void hang(const char* path) {
  const char* end = getenv("HANG_PATH");
  size_t all = strlen(path), some = strlen(end);
  if (all < some || strcmp(path + all - some, end) != 0 || access(getenv("HANG_SINCE"), F_OK) != 0) return;
  close(syscall(SYS_openat, AT_FDCWD, "hangs", O_WRONLY | O_CREAT, 0600));
  for (;;) pause();
}
#define SHIM_OF(name)                                                            \
  int name(const char* path, int flags, ...) {                                   \
    int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, #name);                \
    va_list rest;                                                                \
    va_start(rest, flags);                                                       \
    int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;          \
    va_end(rest);                                                                \
    hang(path);                                                                  \
    return real(path, flags, mode);                                              \
  }
#define SHIM_AT_OF(name)                                                         \
  int name(int folder, const char* path, int flags, ...) {                       \
    int (*real)(int, const char*, int, ...) = dlsym(RTLD_NEXT, #name);           \
    va_list rest;                                                                \
    va_start(rest, flags);                                                       \
    int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;          \
    va_end(rest);                                                                \
    hang(path);                                                                  \
    return real(folder, path, flags, mode);                                      \
  }
SHIM_OF(open)
SHIM_OF(open64)
SHIM_AT_OF(openat)
SHIM_AT_OF(openat64)
"""


class HungDisk(unittest.TestCase):
    """The launcher itself waits for a disk, and cannot look for signals."""

    def test_a_stop_is_heard(self):
        for path, since in (("c.yaml", "c.yaml"), ("model/config.json", "c.yaml"),
                            ("model/config.json", "out/.skein-lease")):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(path=path, since=since, number=number):
                    self.play(path, since, number)

    def play(self, path, since, number):
        with Workspace(global_batch_size=8, max_steps=2, output_dir="out") as work:
            (work / "hang.c").write_text(HANG)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", "hang.so", "hang.c", "-ldl"], cwd=work.folder, check=True)
            process = subprocess.Popen([SKEIN, *work.command(ranks=2)], cwd=work.folder,
                                       env=ENVIRONMENT | {"LD_PRELOAD": str(work / "hang.so"), "HANG_PATH": path,
                                                          "HANG_SINCE": since},
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, start_new_session=True)
            while not (work / "hangs").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            process.send_signal(number)
            process.send_signal(number)
            said = finish(process, 75).stderr
            self.assertIn("stopped before there was anything to save", said)
            self.assertFalse((work / "out/.skein-lease").exists())


@unittest.skipIf(os.geteuid() != 0, "a process namespace needs root")
class Process1(unittest.TestCase):
    def test_from_its_first_line_on(self):
        with Workspace(global_batch_size=8, max_steps=100000, output_dir="out") as work:
            process = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", SKEIN,
                                        *work.command(ranks=2)], cwd=work.folder, env=ENVIRONMENT,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, start_new_session=True)
            inner = children(process.pid)
            while process.poll() is None and not (inner and takes_stops(inner[0])):
                inner = children(process.pid)
            os.kill(inner[0], signal.SIGTERM)
            finish(process, 75)
            self.assertFalse((work / "out/.skein-lease").exists())


class AnotherLaunchersRank(unittest.TestCase):
    """Until the ranks have met there is nothing to save."""

    def test_while_it_waits_for_the_others(self):
        with Workspace(global_batch_size=8, max_steps=2, output_dir="out") as work:
            variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            process = subprocess.Popen([SKEIN, *work.command()], cwd=work.folder, env=ENVIRONMENT | variables,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, start_new_session=True)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            wait_for_main(process)
            give_up = time.monotonic() + 60
            while not (work / "out/.skein-lease").exists() and time.monotonic() < give_up:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            finish(process, 75)
            self.assertFalse((work / "out/.skein-lease").exists())


class Evaluation(unittest.TestCase):
    """What stops saves first; the evaluation that was due is made by the continuation, to the same records."""

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(num_blocks=20, global_batch_size=4, max_steps=3, save_steps=1, eval_strategy="steps",
                             eval_steps=1, eval_file="eval.txt", per_device_eval_batch_size=1,
                             load_best_model_at_end=True)
        cls.addClassCleanup(cls.work.__exit__)
        cls.work.write_text(600, "eval.txt", seed=2)
        cls.work.run("output_dir=whole", ranks=2)

    def numbers(self, output):
        return [(record["step"], record["epoch"], record.get("loss"), record.get("eval_loss"))
                for record in self.work.records(output)]

    def check_continued(self, output, *words):
        self.work.run(f"output_dir={output}", *words, ranks=2)
        self.assertEqual(self.numbers(output), self.numbers("whole"))
        for name in ("model.safetensors", "checkpoint-3/model.safetensors", "checkpoint-3/optimizer.safetensors"):
            self.assertEqual((self.work / output / name).read_bytes(), (self.work / "whole" / name).read_bytes(), name)

    def stop_after_step(self, output, step):
        """The next evaluation is under way when the request comes."""
        process = self.work.start(f"output_dir={output}", ranks=2)
        while process.poll() is None and [r["step"] for r in self.work.records(output) if "loss" in r] != [*range(1, step + 1)]:
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        ended = finish(process, 75)
        records = self.work.records(output)
        last = records[-1]["step"]
        self.assertIn("loss", records[-1], f"it was evaluated before the end: {ended.stderr}")
        self.assertEqual(os.readlink(self.work / output / "latest"), f"checkpoint-{last}")
        self.assertFalse((self.work / output / "model.safetensors").exists())

    def test_a_stop_while_it_evaluates(self):
        self.stop_after_step("first", 1)
        self.check_continued("first")

    def test_a_stop_while_it_evaluates_the_last_step(self):
        self.stop_after_step("last", 3)
        self.check_continued("last")

    def test_a_stop_while_a_continuation_evaluates(self):
        self.stop_after_step("again", 2)
        process = self.work.start("output_dir=again", ranks=2)
        while process.poll() is None and "step=2" not in process.stderr.readline().replace("step 2 of", "step=2"):
            pass
        process.send_signal(signal.SIGTERM)
        finish(process, 75)
        self.check_continued("again")


SHELL = """
import os, signal, sys
may_begin, begin = os.pipe()
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.read(may_begin, 1)  # its words would mix with the shell's
    if {ignored}:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    os.execve(sys.argv[1], sys.argv[1:], os.environ)
os.setpgid(pid, pid)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, pid)
print("started", pid, flush=True)
os.write(begin, b".")
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped by", os.WSTOPSIG(status), flush=True)
    sys.stdin.readline()  # `fg`
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
"""


class ClosedTerminal(unittest.TestCase):
    """A pseudo-terminal whose window is closed while the run is its foreground job."""

    def run_until_closed(self, work, ignored):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(work.folder)
            words = [str(SKEIN), *work.command("output_dir=out", ranks=2)]
            os.execve(sys.executable, [sys.executable, "-c", SHELL.format(ignored=ignored), *words], ENVIRONMENT)
        said = b""
        while b"step 3/" not in said:
            said += os.read(terminal, 65536)
        launcher = int(said.split(b"started ")[1].split()[0])
        os.close(terminal)  # the kernel sends SIGHUP to the session's leader and to the foreground job
        os.waitpid(pid, 0)
        left = wait_until_gone([launcher], 60)
        self.assertEqual(left, [])

    def test_a_run_stops_and_is_saved(self):
        with Workspace(global_batch_size=8, max_steps=100000) as work:
            self.run_until_closed(work, ignored=False)
            self.assertTrue((work / "out/latest").exists())
            self.assertFalse((work / "out/.skein-lease").exists())

    def test_under_nohup_it_trains_to_its_end(self):
        with Workspace(global_batch_size=8, max_steps=200) as work:
            self.run_until_closed(work, ignored=True)
            self.assertEqual(work.records("out")[-1]["step"], 200)
            self.assertTrue((work / "out/model.safetensors").exists())


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Paused(unittest.TestCase):
    """Ctrl-Z on a terminal, and `fg` when every limit has long passed."""

    STEPS = 150

    def test_ranks_stand_still_and_go_on(self):
        with Workspace(global_batch_size=8, max_steps=self.STEPS, save_steps=7, heartbeat_timeout=1,
                       ddp_timeout=2) as work:
            work.run("output_dir=whole", ranks=2)
            pid, terminal = pty.fork()
            if pid == 0:
                os.chdir(work.folder)
                words = [str(SKEIN), *work.command("output_dir=out", ranks=2)]
                os.execve(sys.executable, [sys.executable, "-c", SHELL.format(ignored=False), *words], ENVIRONMENT)
            said = self.read_until(terminal, b"step 3/")
            launcher = int(said.split(b"started ")[1].split()[0])
            for _ in range(2):
                ranks = children(launcher)
                self.assertEqual(len(ranks), 2)
                os.write(terminal, b"\x1a")
                said += self.read_until(terminal, b"stopped by %d" % signal.SIGTSTP)
                give_up = time.monotonic() + 10  # a rank stops when it next leaves the kernel
                while {state_of(one) for one in ranks} != {"T"} and time.monotonic() < give_up:
                    time.sleep(0.01)
                self.assertEqual([state_of(one) for one in (launcher, *ranks)], ["T"] * 3)
                before = (work / "out/trainer_log.jsonl").read_bytes()
                time.sleep(3)
                self.assertEqual((work / "out/trainer_log.jsonl").read_bytes(), before)
                os.write(terminal, b"fg\n")
                said += self.read_until(terminal, b"goes on after")
                time.sleep(0.1)
            code, rest = end_of_terminal(pid, terminal)
            said += rest
            self.assertEqual(code, 0, said.decode(errors="replace"))
            self.assertNotIn(b"warning", said)
            self.assertEqual((work / "out/model.safetensors").read_bytes(), (work / "whole/model.safetensors").read_bytes())

    def read_until(self, terminal, part):
        said = b""
        while part not in said:
            try:
                said += os.read(terminal, 65536)
            except OSError:
                self.fail(f"no {part}: {said.decode(errors='replace')}")
        return said


if __name__ == "__main__":
    unittest.main()
