#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Asks runs to stop whose saves take 10 s: within the 30 s that batch systems usually grant everything is saved,
whatever they were doing."""
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from harness import ENVIRONMENT, SKEIN, Workspace, finish  # noqa: E402

LIMIT = 30  # seconds

# A manifest is the last file of a save: its fsync takes 10 s.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int fsync(int descriptor) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path);
  const char name[] = "/manifest.json";
  const ssize_t length = sizeof name - 1;
  if (size > length && memcmp(path + size - length, name, length) == 0) sleep(10);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(descriptor);
}
"""


def start(work, output, *words):
    command = [SKEIN, *work.command(f"output_dir={output}", *words, ranks=2)]
    return subprocess.Popen(command, cwd=work.folder, env=ENVIRONMENT | {"LD_PRELOAD": str(work / "shim.so")},
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def wait_for(process, condition):
    while not condition():
        if process.poll() is not None:
            raise AssertionError(finish(process).stderr)
        time.sleep(0.01)


def play(work, name, words, condition):
    output = work / name
    process = start(work, name, *words)
    wait_for(process, lambda: condition(output))
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = finish(process, 75).stderr
    seconds = time.monotonic() - begun
    last = max(record["step"] for record in work.records(name) if "loss" in record)
    saved = (output / "latest").resolve().name
    is_saved = saved == f"checkpoint-{last}"
    print(f"asked to stop in {name}: {seconds:.1f} s, step {last}, {saved}")
    if is_saved and 10 <= seconds < LIMIT:
        return True
    print(said[-4000:])
    return False


def logged(work, steps):
    return lambda output: len(work.records(output.name)) >= steps


def is_saving(output):
    return any(output.glob("checkpoint-*.tmp-*/manifest.json*"))


def main():
    work = Workspace(num_blocks=200, global_batch_size=8, max_steps=1_000_000, per_device_eval_batch_size=1,
                     eval_file="eval.txt")
    try:
        work.write_text(20_000, "eval.txt", seed=2)
        (work / "shim.c").write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=work.folder, check=True)
        never = "save_steps=1000000"
        evaluating = ("eval_strategy=steps", "eval_steps=5")
        passed = [play(work, "a step", [never], logged(work, 20)),
                  play(work, "a save", ["save_steps=20"], is_saving),
                  play(work, "an evaluation", [never, *evaluating], logged(work, 5)),
                  play(work, "an evaluation beside a save", ["save_steps=5", *evaluating], is_saving)]
    finally:
        shutil.rmtree(work.folder)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
