#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Checks file lengths: 800 lines, 150 for the two training loops. clang-tidy checks functions."""
import subprocess
import sys
from pathlib import Path

LIMIT = 800
LIMITS = {"skein/train/offline.cpp": 150, "skein/train/online/online.cpp": 150}
EXCEPTIONS = {}  # path: (lines allowed, reason)
SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md")


def main(root):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True,
                            capture_output=True, text=True).stdout.split("\n")
    for file in sorted(set(listed)):
        if file.endswith(SUFFIXES) and (root / file).is_file():
            limit = EXCEPTIONS[file][0] if file in EXCEPTIONS else LIMITS.get(file, LIMIT)
            lines = len((root / file).read_bytes().splitlines())
            if lines > limit:
                yield f"{file}: {lines} lines, the limit is {limit}: split it by subject"


if __name__ == "__main__":
    found = main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
    sys.exit("\n".join(found) or None)
