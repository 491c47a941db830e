#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Kills runs at random instants and continues them: the end must be the undisturbed run's, byte for
byte.

  tests/faults/kill_and_resume.py                 40 cases
  tests/faults/kill_and_resume.py --cases 200 --first 1000
  tests/faults/kill_and_resume.py --only 17       one case again, with its messages
"""
import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from kills import KINDS, WAYS, Fault, Scene  # noqa: E402

STRATEGIES = ("ddp", "zero2", "zero3")
# A launcher that is gone or was asked to stop starts nothing again.
RESTARTED = ("rank", "rank 0", "SIGSTOP")


def fault_of(seed):
    """Everything but the order of the kinds is drawn."""
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    ranks = draw.choice((2, 2, 3, 4))
    victim = 0 if kind == "rank 0" else draw.randrange(1, ranks)
    if kind == "SIGSTOP":
        victim = draw.randrange(ranks)
    return Fault(kind=kind, ranks=ranks, strategy=draw.choice(STRATEGIES), victim=victim,
                 instant=draw.uniform(0.02, 0.95), seed=seed,
                 way=draw.choice(WAYS) if kind in RESTARTED else "again")


def milliseconds(seconds):
    return "-" if seconds is None else f"{1000 * seconds:.0f}"


def row(result):
    fault = result.fault
    what = f"{fault.kind} {fault.victim}" if fault.kind in ("rank", "SIGSTOP") else fault.kind
    return (f"{fault.seed:5}  {what:10} {fault.ranks} {fault.strategy:6} {fault.instant:7.2f} "
            f"{result.at_step:5} {milliseconds(result.detected):>9} {milliseconds(result.ended):>7} "
            f"{fault.way:8} {milliseconds(result.recovered):>9}  "
            f"{'; '.join(result.problems) or 'equal'}")


def summary(results, seconds):
    print(f"\n{len(results)} cases in {seconds:.0f} s, {sum(bool(r.problems) for r in results)} failed")
    print(f"{'fault':10} {'cases':>5} {'detected ms':>22} {'recovered ms':>22}")
    for kind in KINDS:
        chosen = [result for result in results if result.fault.kind == kind]
        if chosen:
            print(f"{kind:10} {len(chosen):5} {spread([r.detected for r in chosen])} "
                  f"{spread([r.recovered for r in chosen if r.recovered is not None])}")


def spread(values):
    if not values:
        return f"{'-':>22}"
    return f"{1000 * statistics.median(values):6.0f} (max {1000 * max(values):6.0f})".rjust(22)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--only", type=int, metavar="SEED")
    parser.add_argument("--way", choices=WAYS, help="not drawn but this")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    if options.only is not None:
        seeds = [options.only]

    print(f"{'seed':>5}  {'fault':10} ranks  {'instant':>9} {'step':>5} {'detected':>9} {'ended':>7} "
          f"{'way':8} {'recovered':>9}  result   (times in ms)")
    begin = time.monotonic()
    results = []
    with Scene() as scene:
        for seed in seeds:
            fault = fault_of(seed)
            fault.way = options.way or fault.way
            results.append(scene.play(fault))
            print(row(results[-1]), flush=True)
            if results[-1].problems or options.only is not None:
                print(results[-1].stderr)
    summary(results, time.monotonic() - begin)
    failed = [result.fault.seed for result in results if result.problems]
    for seed in failed:
        print(f"again: tests/faults/kill_and_resume.py --only {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
