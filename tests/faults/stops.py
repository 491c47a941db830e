#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Asks short runs to stop at instants over their whole life: exit code 75, or 0 with all done; nothing is left.

  tests/faults/stops.py                 100 cases
  tests/faults/stops.py --cases 400 --seed 7
"""
import argparse
import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from stop_scene import Stops  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    begin = time.monotonic()
    codes = collections.Counter()
    failed = 0
    with Stops() as stops:
        for k, instant in enumerate(stops.instants(options.cases, options.seed)):
            code, problems = stops.play(f"case-{k}", instant, ranks=1 + k % 2, all_of_it=k % 4 >= 2)
            codes[code] += 1
            failed += bool(problems)
            for problem in problems:
                print(f"after {instant:.4f} s: {problem}", flush=True)
    print(f"{options.cases} cases in {time.monotonic() - begin:.0f} s, exit codes {dict(codes)}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
