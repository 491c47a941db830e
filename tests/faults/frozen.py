#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A rank that neither runs nor dies: in a frozen cgroup (version 1, root). The launcher names it and ends. Two minutes.

Where there is no such cgroup, skein/launch/ranks/launcher_test.cpp still shows a rank that cannot be ended."""
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from harness import ENVIRONMENT, SKEIN, Workspace, children, is_alive  # noqa: E402

FREEZER = Path("/sys/fs/cgroup/freezer")
LONGEST_END = 60  # seconds: LaunchOptions::longest_end


def main():
    if os.geteuid() != 0 or not (FREEZER / "cgroup.procs").exists():
        print("no freezer cgroup here: nothing was tried")
        return 0
    group = FREEZER / f"skein-test-{os.getpid()}"
    group.mkdir()
    try:
        with Workspace(global_batch_size=8, max_steps=1000000, output_dir="out") as work:
            return freeze(work, group)
    finally:
        (group / "freezer.state").write_text("THAWED")
        while (group / "cgroup.procs").read_text():
            time.sleep(0.05)
        group.rmdir()


def freeze(work, group):
    said = work / "stderr.txt"  # a file: the frozen rank would hold a pipe open
    with said.open("w") as stderr:
        process = subprocess.Popen([SKEIN, *work.command(ranks=2)], cwd=work.folder, env=ENVIRONMENT, stderr=stderr,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    work.wait_for_step(process, "out", 5)
    victim = children(process.pid)[1]
    (group / "cgroup.procs").write_text(str(victim))
    (group / "freezer.state").write_text("FROZEN")
    begin = time.monotonic()
    try:
        code = process.wait(LONGEST_END + 60)
    except subprocess.TimeoutExpired:
        process.kill()
        code = None
    seconds = time.monotonic() - begin
    stderr = said.read_text()
    print(stderr[stderr.find("error: "):])
    problems = [] if code == 3 else [f"exit code {code}"]
    if not re.search(rf"error: launch: rank 1 on \S+ \(pid {victim}\) has given no sign of life", stderr):
        problems.append("the frozen rank is not named")
    if is_alive(victim) and not re.search(rf"remains +rank 1 on \S+ \(pid {victim}, state ", stderr):
        problems.append("it is not said that it remains")
    print(f"ended after {seconds:.0f} s; the frozen rank {'remains' if is_alive(victim) else 'is gone'}; "
          f"{'; '.join(problems) or 'as it should be'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
