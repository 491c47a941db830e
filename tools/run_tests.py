#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Runs all tests and ends with a line `N passed, N failed`.

The tests are the GoogleTest programs of a build (BUILD/tests/*_test) and the unittest files of
tests/ranks and tools. Output of what passes is dropped, output of what fails is printed in full. A
program that crashes or runs too long counts as a failed test. Tests find the build in SKEIN_BUILD.

Tests that hold a whole matrix of cases take a sample of it, drawn by SKEIN_SEED, which is printed; with
--long (SKEIN_LONG=1) they take all.

  tools/run_tests.py                           everything of build/release
  tools/run_tests.py comm launch               only programs and files whose name starts so
  tools/run_tests.py --build build/asan --gtest-only
  SKEIN_SEED=7 tools/run_tests.py sharding     the sample that seed 7 draws
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outcome:
    name: str
    passed: int = 0
    failed: list = field(default_factory=list)   # names
    skipped: list = field(default_factory=list)  # names
    output: str = ""
    seconds: float = 0.0
    exit_code: int = 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--gtest-only", action="store_true")
    parser.add_argument("--long", action="store_true", help="whole matrices")
    parser.add_argument("--jobs", type=int, default=2, help="GoogleTest programs at a time")
    parser.add_argument("--timeout", type=float, help="seconds per program or file (600; 7200 with --long)")
    parser.add_argument("--unittest-file", nargs=2, metavar=("FILE", "RESULT"), help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="only those whose name starts so")
    options = parser.parse_args()
    if options.unittest_file:
        return run_unittest_file(*options.unittest_file)

    os.environ["SKEIN_BUILD"] = str(options.build.resolve())
    # Tests run beside each other, and their tensors are tiny: more threads would only wait.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # As skein-worker does for itself: on some virtual machines LibTorch's AMX tiles end in SIGILL.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    timeout = options.timeout or (7200 if options.long else 600)
    if options.long:
        os.environ["SKEIN_LONG"] = "1"
    else:
        seed = os.environ.setdefault("SKEIN_SEED", str(int(time.time()) % 100_000))
        print(f"samples of matrices: SKEIN_SEED={seed}", flush=True)
    programs = find(options.build / "tests", "*_test", options.names)
    files = []
    if not options.gtest_only:
        files = [file for folder in ("tools", "tests/ranks")
                 for file in find(ROOT / folder, "*_test.py", options.names)]

    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda program: run_program(program, timeout), programs):
            outcomes.append(report(outcome))
    # One at a time: each starts several ranks, and some count what crosses the loopback.
    for path in files:
        outcomes.append(report(run_file(path, timeout)))
    return summarise(outcomes)


def find(folder, pattern, names):
    return [path for path in sorted(folder.glob(pattern)) if path.name.startswith(tuple(names) or "")]


def report(outcome):
    verdict = "FAILED" if outcome.failed else "ok"
    print(f"{verdict:6} {outcome.name:32} {outcome.passed:5} passed {outcome.seconds:7.1f} s", flush=True)
    if outcome.failed:
        print(outcome.output.rstrip(), flush=True)
    return outcome


def summarise(outcomes):
    for kind in ("skipped", "failed"):
        for outcome in outcomes:
            for name in getattr(outcome, kind):
                print(f"{kind}: {outcome.name}: {name}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(len(outcome.failed) for outcome in outcomes)
    if passed + failed == 0:
        print("no test ran: is the build there, and do the names fit?")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or passed == 0 else 0


def run_program(program, timeout):
    """A GoogleTest program."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        outcome, ending = run_child([str(program), f"--gtest_output=json:{result}", "--gtest_color=no"],
                                    program.name, timeout)
        if ending is None and result.exists():
            read_gtest_result(json.loads(result.read_text()), outcome)
        else:
            blame_running_test(outcome, ending or "ended without a result")
    blame_program(outcome)
    # The lines of passing tests only hide the others.
    outcome.output = re.sub(r"(?m)^\[ RUN      \] (.*)\n\[       OK \] \1 .*\n", "", outcome.output)
    return outcome


def read_gtest_result(result, outcome):
    for suite in result["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                outcome.failed.append(name)
            elif test["status"] == "NOTRUN" or test["result"] == "SKIPPED":
                outcome.skipped.append(name)
            else:
                outcome.passed += 1


def blame_running_test(outcome, ending):
    """The program died: the last test that started is the one to look at."""
    started = re.findall(r"(?m)^\[ RUN      \] (\S+)", outcome.output)
    outcome.passed = len(re.findall(r"(?m)^\[       OK \] ", outcome.output))
    outcome.failed = re.findall(r"(?m)^\[  FAILED  \] (\S+) \(", outcome.output)
    outcome.failed.append(f"{started[-1] if started else 'before any test'} ({ending})")


def run_file(path, timeout):
    """A unittest file, in a process of its own."""
    name = str(path.relative_to(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        outcome, ending = run_child([sys.executable, __file__, "--unittest-file", str(path), str(result)],
                                    name, timeout)
        if result.exists():
            vars(outcome).update(json.loads(result.read_text()))
        if ending is not None or not result.exists():
            outcome.failed.append(f"the whole file ({ending or 'ended without a result'})")
    blame_program(outcome)
    return outcome


def blame_program(outcome):
    """No test failed, yet all is not well: something at exit failed, or there was nothing to run."""
    if outcome.exit_code != 0 and not outcome.failed:
        outcome.failed.append(f"after the last test (exit code {outcome.exit_code})")
    if not (outcome.passed or outcome.failed or outcome.skipped):
        outcome.failed.append("it holds no test")


def run_child(command, name, timeout):
    """Runs a command in the repository root. Returns the outcome so far, and how it died if it did."""
    begin = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    ending = None
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # its ranks too
        output, _ = child.communicate()
        ending = f"still running after {timeout:.0f} s"
    if ending is None and child.returncode < 0:
        ending = f"killed by {signal.Signals(-child.returncode).name}"
    elif ending is None and child.returncode not in (0, 1):
        ending = f"exit code {child.returncode}"
    outcome = Outcome(name, output=output.decode(errors="replace"), seconds=time.monotonic() - begin,
                      exit_code=child.returncode)
    return outcome, ending


def run_unittest_file(path, result_path):
    path = Path(path)
    sys.path.insert(0, str(path.parent))
    suite = unittest.defaultTestLoader.loadTestsFromName(path.stem)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    failed = [str(test) for test, _ in [*result.failures, *result.errors]]
    failed += [str(test) for test in result.unexpectedSuccesses]
    skipped = [f"{test}: {reason}" for test, reason in result.skipped]
    passed = max(0, result.testsRun - len(failed) - len(skipped))
    Path(result_path).write_text(json.dumps({"passed": passed, "failed": failed, "skipped": skipped}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
