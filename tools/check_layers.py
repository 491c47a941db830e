#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Checks that includes only go down (tools/layers.txt, which names no more than is included), that torch
stays out of torch-free code, that JSON has one reader, and that no folder is too full to find anything in.

A file belongs to its folder, `core`, or its sub-folder, `launch/placement`, with all that lies deeper.
Torch-free are the folders that layers.txt names, all `.cu` files, and every skein header these reach.
"""
import re
import sys
from collections import Counter
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = ("torch/", "ATen/", "c10/")
JSON_READER = re.compile(r"[Jj]son::(?:parse|accept|sax_parse)\(|\bsimdjson\b")  # core/json has limits, these have none
MOST_SOURCES = 60


def main(root):
    layers = read_layers(root / "tools/layers.txt")
    torch_free_folders = layers.pop("torch_free", [])
    files = sorted(p for p in (root / "skein").rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
    includes = {str(p.relative_to(root)): INCLUDE.findall(p.read_text()) for p in files}
    errors = [*check_order(layers), *check_use(layers, includes), *check_sizes(includes)]
    errors += [error for file in includes for error in check_includes(file, includes[file], layers)]
    errors += [f"{file.relative_to(root)} reads JSON: core/json.h does, with limits" for file in files if reads_json(file, root)]
    for file in includes:
        if matches(folder_of(file), torch_free_folders) or file.endswith((".cu", ".cuh")):
            errors += check_torch_free(file, includes)
    return sorted(set(errors))


def read_layers(path):
    """folder → the names on its line, in the file's order."""
    return {folder: names.split() for folder, names in re.findall(r"^([\w/]+):(.*)$", path.read_text(), re.M)}


def folder_of(file):
    """skein/core/error.h: core; skein/comm/gloo/shim/a.h: comm/gloo."""
    return "/".join(file.split("/")[1:-1][:2])


def matches(folder, names):
    return any(name in (folder, "*") or folder.startswith(name + "/") for name in names)


def check_order(layers):
    """A line names folders above it alone, so that no two can include each other."""
    above = []
    for folder, names in layers.items():
        for name in names:
            if name != "*" and not any(matches(other, [name]) for other in above):
                yield f"tools/layers.txt: '{folder}' names '{name}', which has no line above it"
        above.append(folder)


def check_use(layers, includes):
    """A line is what its folder includes: one that allows more would let an edge come back unseen."""
    used = {(folder_of(file), folder_of(target)) for file in includes for target in includes[file]}
    for folder, names in layers.items():
        for name in names:
            if name != "*" and not any(matches(target, [name]) for source, target in used if source == folder):
                yield f"tools/layers.txt: '{folder}' names '{name}', which none of its files includes"


def check_sizes(includes):
    counts = Counter(file.rsplit("/", 1)[0] for file in includes)
    for folder, count in counts.items():
        if count > MOST_SOURCES:
            yield f"{folder}: {count} sources, the limit is {MOST_SOURCES}: split it by the questions it answers"


def check_includes(file, included, layers):
    folder = folder_of(file)
    if folder not in layers:
        yield f"{file}: folder '{folder}' has no line in tools/layers.txt"
        return
    for target in included:
        other = folder_of(target)
        if target.startswith("skein/") and other != folder and not matches(other, layers[folder]):
            yield f"{file} includes {target}: '{folder}' may not include '{other}' (tools/layers.txt)"


def reads_json(file, root):
    is_reader = file == root / "skein/core/json.cpp"
    return not is_reader and not file.name.endswith("_test.cpp") and JSON_READER.search(file.read_text())


def check_torch_free(start, includes):
    """Follows the skein headers that `start` reaches."""
    seen, waiting = set(), [start]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for target in includes.get(file, []):
            if target.startswith(TORCH):
                through = "" if file == start else f", reached from {start}"
                yield f"{file} includes {target}: torch-free code may not{through}"
            waiting.append(target)


if __name__ == "__main__":
    found = main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
    sys.exit("\n".join(found) or None)
