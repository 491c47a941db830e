#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Runs the libFuzzer programs of build/fuzz and ends with one line for each.

What they learn stays in build/fuzz/corpus and serves the next run; what breaks them is put into
build/fuzz/found. To keep a finding, minimise it (`fuzz_NAME -minimize_crash=1 -runs=100000 FILE`) and
add it to tests/fuzz/corpus/NAME, which `make test` replays.

  tests/fuzz/run.py --seconds 600 [--jobs 2] [safetensors …]
"""
import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz"
TRACKED = ROOT / "tests/fuzz/corpus"
TARGETS = sorted(folder.name for folder in TRACKED.iterdir())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        clean = list(pool.map(lambda target: fuzz(target, options.seconds), options.targets))
    return 0 if all(clean) else 1


def fuzz(target, seconds):
    learnt, found, empty = (BUILD / kind / target for kind in ("corpus", "found", "work"))
    for folder in (learnt, found, empty):
        folder.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{target}.log"
    command = [BUILD / "bin" / f"fuzz_{target}", f"-max_total_time={seconds}", "-timeout=10",
               "-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={found}/",
               f"-dict={ROOT}/tests/fuzz/words.dict", learnt, TRACKED / target]
    # In an empty folder: a configuration may name files.
    with log.open("w") as out:
        code = subprocess.run(command, cwd=empty, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                              check=False).returncode
    text = log.read_text(errors="replace")
    crash = "none" if code == 0 else f"exit code {code}, see {log.relative_to(ROOT)}"
    print(f"fuzz {target}: {last(text, r'number_of_executed_units: *([0-9]+)')} executions, "
          f"{last(text, r' cov: ([0-9]+) ')} edges and {last(text, r' ft: ([0-9]+) ')} features "
          f"covered, crashes: {crash}", flush=True)
    return code == 0


def last(text, pattern):
    found = re.findall(pattern, text)
    return f"{int(found[-1]):,}" if found else "?"


if __name__ == "__main__":
    sys.exit(main())
