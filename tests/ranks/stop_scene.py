# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A short run that is asked to stop at any instant of its life, from main() to its last: what the sample of
`make test` and the long loop of `make faults` share."""
import os
import random
import signal
import time
from pathlib import Path

from harness import SKEIN, Workspace, finish, processes_in_session

STEPS = 6


def takes_stops(pid):
    """Has it come to the first line of main(), which holds SIGTERM?"""
    try:
        program = Path(os.readlink(f"/proc/{pid}/exe"))
        if program == SKEIN.resolve().with_name("skein-worker"):
            return True  # another launcher's rank is long past it
        if program != SKEIN.resolve():
            return False  # what starts it may hold signals too
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
    return bool(int(held, 16) >> (signal.SIGTERM - 1) & 1)


def wait_for_main(process):
    while process.poll() is None and not takes_stops(process.pid):
        time.sleep(0.0002)


def ask(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # ended meanwhile


class Stops:
    """Runs in one workspace; text that was never encoded is prepared anew in each."""

    def __init__(self):
        self.work = Workspace(num_blocks=40, global_batch_size=8, max_steps=STEPS, save_steps=2, eval_strategy="steps",
                              eval_steps=2)
        begun = time.monotonic()
        self.play("undisturbed", None)
        self.lifetime = time.monotonic() - begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.work.__exit__()

    def instants(self, count, seed):
        """So many, evenly over the life of a run and a little beyond, each drawn within its part."""
        draw = random.Random(seed)
        return [1.1 * self.lifetime * (k + draw.random()) / count for k in range(count)]

    def play(self, name, instant, ranks=2, every=None, all_of_it=False):
        """Asked at `instant`, then again every so many seconds; all of it: its ranks are asked too, and first, as
        batch systems do. Returns the exit code and what is wrong."""
        self.work.write_text(40, f"{name}.txt", seed=name)
        process = self.work.start(f"output_dir={name}", f"train_file={name}.txt", ranks=ranks)
        wait_for_main(process)
        if instant is not None:
            time.sleep(instant)
            if all_of_it:
                ask([pid for pid in processes_in_session(process.pid) if pid != process.pid])
            process.send_signal(signal.SIGTERM)
            while every and process.poll() is None:
                time.sleep(every)
                process.send_signal(signal.SIGTERM)
        ended = finish(process)
        problems = []
        if ended.returncode not in (0, 75) or (ended.returncode == 75 and instant is None):
            problems.append(f"exit code {ended.returncode}")
        if ended.returncode == 0 and len([r for r in self.work.records(name) if "loss" in r]) != STEPS:
            problems.append("exit code 0 before the last step")
        if (self.work / name / ".skein-lease").exists():
            problems.append("the lease is left")
        if left := processes_in_session(process.pid):
            problems.append(f"processes {left} are left")
        return ended.returncode, [f"{problem}\n{ended.stderr}" for problem in problems]
