#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""How soon is a killed or stopped rank noticed, and how soon does training go on? skein beside
torchrun on the same machine, two ranks, the same faults; torchrun only where `make parity` has
installed it.

  tests/faults/detection.py [--kills 3]
"""
import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from harness import ENVIRONMENT, ROOT, Workspace, gpt2, wait_until_gone  # noqa: E402
from kills import Watched, step_of  # noqa: E402

TORCHRUN = ROOT / ".deps/parity/bin/torchrun"
PEER = Path(__file__).resolve().with_name("torchrun_peer.py")
PATIENCE = 60  # seconds after which a fault counts as not noticed
VICTIM = 1


def start_skein(folder):
    work = Workspace(gpt2(), num_blocks=60, global_batch_size=24, gradient_accumulation_steps=2,
                     max_steps=100_000, save_steps=4, save_total_limit=2)
    run = Watched(work.start("output_dir=out", "--max-restarts", "3", ranks=2))
    return run, lambda line: re.search(rf"(error|warning): .*rank {VICTIM} ", line), work


def start_torchrun(folder):
    command = [TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", PEER,
               Path(folder) / "state.pt"]
    run = Watched(subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True))
    return run, lambda line: "failed (exitcode: -9)" in line and f"local_rank: {VICTIM}" in line, None


def until(condition, seconds):
    """What condition() first returns that is not None; None after so many seconds."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        found = condition()
        if found is not None:
            return found
        time.sleep(0.005)
    return None


def ranks_of(run):
    """torchrun's ranks carry RANK too."""
    ranks = run.ranks()
    return ranks if len(ranks) == 2 else None


def measure(start, sent, folder):
    """Seconds from the signal to the report, and to the next finished step; None: not noticed."""
    run, is_report, work = start(folder)
    pids = []
    try:
        if until(lambda: True if run.last_step() >= 20 else None, PATIENCE) is None:
            raise AssertionError(f"no step 20 within {PATIENCE} s:\n{run.text()}")
        pids = list(ranks_of(run).values())
        when = time.monotonic()
        os.kill(run.ranks()[VICTIM], sent)
        reported = until(lambda: run.time_of(is_report, when), PATIENCE)
        going_on = None
        if reported is not None:
            new = until(lambda: ranks_of(run) if not set(pids) & set(run.ranks().values()) else None,
                        PATIENCE)
            pids += list(new.values()) if new else []
            going_on = until(lambda: run.time_of(lambda line: step_of(line) > 0, reported), PATIENCE)
    finally:
        for pid in [run.process.pid, *run.ranks().values()]:
            os.kill(pid, signal.SIGKILL)
        run.wait()
        wait_until_gone(pids)
        if work:
            work.__exit__()
    return [None if moment is None else moment - when for moment in (reported, going_on)]


def show(values):
    seen = [value for value in values if value is not None]
    if not seen:
        return f"not within {PATIENCE} s"
    return f"{1000 * statistics.median(seen):.0f} (max {1000 * max(seen):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=3, help="per launcher; one is stopped")
    options = parser.parse_args()
    launchers = {"skein": start_skein}
    if TORCHRUN.exists():
        launchers["torchrun"] = start_torchrun
    print(f"{'fault':10} {'launcher':9} {'runs':>4} {'noticed, ms':>22} {'next step, ms':>22}")
    for fault, sent, runs in (("kill -9", signal.SIGKILL, options.kills),
                              ("SIGSTOP", signal.SIGSTOP, 1)):
        for name, start in launchers.items():
            with tempfile.TemporaryDirectory() as folder:
                seen = [measure(start, sent, folder) for _ in range(runs)]
            noticed, going_on = zip(*seen)
            print(f"{fault:10} {name:9} {runs:4} {show(noticed):>22} {show(going_on):>22}", flush=True)
    if "torchrun" not in launchers:
        print("no torchrun: `make parity` installs it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
