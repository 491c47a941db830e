#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Checks that the paths and make targets which the documents name exist.

Looked at are README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/*.md: relative links, and words in
backticks or fenced blocks that begin with a folder of the repository or, ending in .h, .cpp or .cu,
with a folder of skein/. `{a,b}` and `<name>` are patterns, not paths; what a page tells its reader to
create (a line that begins with Create) need not exist.

  tools/check_docs.py --commands README.md    prints the blocks fenced as ```bash run, which CI runs
"""
import re
import sys
from pathlib import Path

FOLDERS = ("skein", "docs", "tools", "tests", "cmake", "benchmarks", "scripts", "recipes", "examples", ".ci")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.M | re.S)


def main(root):
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.M))
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))):
        document = root / name
        if document.exists():
            text = document.read_text()
            where = document.relative_to(root)
            yield from (f"{where}: no such path: {path}" for path in missing_paths(root, document, text))
            code = "\n".join(code_spans(text))
            for target in re.findall(r"(?m)(?:^|[;&|] *)make ([a-z][\w-]*)", code):
                if target not in targets:
                    yield f"{where}: no such target: make {target}"


def code_spans(text):
    yield from (body for _, body in FENCE.findall(text))
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def missing_paths(root, document, text):
    for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", FENCE.sub("", text)):
        if not re.match(r"\w+:", link) and not (document.parent / link).exists():
            yield link
    created = set(re.findall(r"^Create `([^`]+)`", text, re.M))  # by the reader
    for span in code_spans(text):
        for word in span.split():
            word = re.sub(r"(:\d+)+$", "", word.strip("\"'(),;:").removeprefix("./")).rstrip(".")
            base = folder_of(root, word)
            if base and word not in created and not any(base.glob(word.rstrip("/"))):
                yield word


def folder_of(root, word):
    """Where a word is looked for; None when it does not look like one of our paths."""
    first, slash, rest = word.partition("/")
    if not PATH.fullmatch(word) or not rest:
        return None
    if first in FOLDERS:
        return root
    is_source = word.endswith((".h", ".cpp", ".cu")) and (root / "skein" / first).is_dir()
    return root / "skein" if is_source else None


def commands(document):
    blocks = FENCE.findall(document.read_text())
    return "\n".join(body for info, body in blocks if info.split() == ["bash", "run"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--commands"]:
        print(commands(Path(sys.argv[2])) or sys.exit(f"{sys.argv[2]}: no block is fenced as ```bash run"))
    else:
        found = main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
        sys.exit("\n".join(found) or None)
