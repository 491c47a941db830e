#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Runs clang-tidy on the sources that are not known to be clean.

A LibTorch source costs 15 to 25 seconds, so tools/tidy_clean.txt, which is tracked, lists a hash for
each clean one: over the source, the skein headers it includes itself, and .clang-tidy, without their
#include lines: a file that only moved stays known. Test files are left out: GoogleTest's macros trip
half of the checks.

  tools/tidy.py            check what is not listed; fails on a finding
  tools/tidy.py --update   the same, then list what is clean now
  tools/tidy.py FILE…      only these, listed or not
"""
import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEAN = ROOT / "tools/tidy_clean.txt"
HEADING = "# Sources that clang-tidy 19 found clean, by content. Written by tools/tidy.py --update.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true", help="rewrite tools/tidy_clean.txt")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()

    hashes = {source: content_hash(source) for source in compiled_sources(options.build)}
    known = set(re.findall(r"(?m)^([0-9a-f]{64}) ", CLEAN.read_text())) if CLEAN.exists() else set()
    chosen = [path.resolve() for path in options.files]
    unknown = [path for path in chosen if path not in hashes]
    if unknown:
        sys.exit(f"tidy: {options.build} does not compile {' '.join(map(str, unknown))}")
    todo = chosen or [source for source in hashes if hashes[source] not in known]

    print(f"tidy: {len(todo)} of {len(hashes)} sources to check", flush=True)
    dirty = set()
    with ThreadPoolExecutor(options.jobs) as pool:
        for source, findings in pool.map(lambda source: (source, run_tidy(source, options.build)), todo):
            if findings:
                dirty.add(source)
                print(findings, flush=True)
    if options.update:
        known |= {hashes[source] for source in todo}
        write_clean({s: h for s, h in hashes.items() if h in known and s not in dirty})
    if dirty:
        sys.exit(f"tidy: findings in {', '.join(sorted(str(s.relative_to(ROOT)) for s in dirty))}")
    if todo and not options.update:
        print("tidy: clean; `tools/tidy.py --update` records that")


def compiled_sources(build):
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"tidy: no {database}; run `make` first")
    files = {Path(entry["file"]).resolve() for entry in json.loads(database.read_text())}
    return sorted(f for f in files if (ROOT / "skein") in f.parents and f.suffix == ".cpp"
                  and not f.name.endswith("_test.cpp"))


def content_hash(source):
    text = source.read_text()
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes() + without_includes(text))
    headers = [ROOT / name for name in re.findall(r'^\s*#\s*include\s*"(skein/[^"]+)"', text, re.M)]
    for part in sorted(without_includes(header.read_text()) for header in headers if header.exists()):
        digest.update(part)
    return digest.hexdigest()


def without_includes(text):
    return re.sub(r"(?m)^\s*#\s*include.*\n", "", text).encode()


def run_tidy(source, build):
    """The findings, empty when clean."""
    result = subprocess.run(["clang-tidy-19", "--quiet", "-p", build, source], cwd=ROOT,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    findings = result.stdout.strip() or result.stderr.strip()
    return findings or f"{source}: clang-tidy exit code {result.returncode}"


def write_clean(hashes):
    rows = [f"{digest} {source.relative_to(ROOT)}\n" for source, digest in hashes.items()]
    CLEAN.write_text(HEADING + "".join(sorted(rows, key=lambda row: row.split()[1])))


if __name__ == "__main__":
    main()
