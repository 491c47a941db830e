#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Copies a build's programs, stripped, into BUILD/dist: bin/, tests/, and lib/ with the libraries
that neither LibTorch's wheels nor a bare Linux system bring. At most 40 MB, so that it travels.

On the other machine the programs find lib/ by their RPATH, and LibTorch by LD_LIBRARY_PATH (or lie
where they were built).
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

LIMIT = 40_000_000  # bytes
GPU_TESTS = ("ops_test", "comm_test", "gpu_test")  # those of tests/gpu/run.sh; the others need no GPU
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|gomp|cuda))\.so")


def main(build):
    dist = build / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    programs = [program for name in ("skein", "skein-worker") if (program := build / "bin" / name).exists()]
    tests = [test for name in GPU_TESTS if (test := build / "tests" / name).exists()]
    if not programs:
        sys.exit(f"make_dist: no programs in {build / 'bin'}")

    problems = []
    for program in [*programs, *tests]:
        own = own_libraries(program)
        if own and "$ORIGIN/../lib" not in run("readelf", "-d", program):
            problems.append(f"{program} needs {', '.join(sorted(own))} but has no RPATH $ORIGIN/../lib")
        for name, path in own.items():
            copy(path, dist / "lib" / name)
    for program in programs:
        copy(program, dist / "bin" / program.name)
    for test in tests:
        copy(test, dist / "tests" / test.name)
    if problems:
        sys.exit("\n".join(f"make_dist: {problem}" for problem in problems))
    size = sum(path.stat().st_size for path in dist.rglob("*") if path.is_file())
    print(f"{dist}: {len(programs)} programs, {len(tests)} tests, {size / 1e6:.1f} MB")
    if size > LIMIT:
        sys.exit(f"make_dist: more than the limit of {LIMIT / 1e6:.0f} MB")


def own_libraries(program):
    """name → path of the shared libraries that have to travel with the program."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", program))
    found = dict(re.findall(r"(?m)^\s*(\S+) => (/\S+)", run("ldd", program)))
    paths = {name: Path(found[name]).resolve() for name in needed if name in found}
    return {name: path for name, path in paths.items()
            if not SYSTEM.match(name) and "/.deps/wheels/" not in str(path)}


def copy(source, destination):
    destination.parent.mkdir(parents=True, exist_ok=True)
    run("strip", "-o", destination, source.resolve())


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
