#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Kills `skein gradients collect` (a rank, all, the launcher) at random instants and goes on with 1 to 4 ranks: the merged rows
must be the undisturbed collection's, byte for byte.

  tests/faults/kill_and_collect.py                  10 cases
  tests/faults/kill_and_collect.py --cases 50 --first 100
"""
import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from gradient_kills import Collection  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    options = parser.parse_args()
    failed = []
    begin = time.monotonic()
    with Collection(num_rows=161) as collection:
        for seed in range(options.first, options.first + options.cases):
            try:
                print(f"{seed:5}  {collection.play(seed)}", flush=True)
            except AssertionError as error:
                failed.append(seed)
                print(f"{seed:5}  FAILED: {error}", flush=True)
    print(f"{options.cases} cases in {time.monotonic() - begin:.0f} s, {len(failed)} failed")
    for seed in failed:
        print(f"again: tests/faults/kill_and_collect.py --cases 1 --first {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
