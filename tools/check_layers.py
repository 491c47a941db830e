#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Checks that includes only go down (tools/layers.txt) and that torch stays out of torch-free code.

Torch-free are the folders that layers.txt names, the `<folder>_format` targets (FORMAT_SOURCES and
FORMAT_TESTS of a skein/*/CMakeLists.txt), all `.cu` files, and every skein header these reach.
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = ("torch/", "ATen/", "c10/")
FORMAT_FILES = re.compile(r"\bFORMAT_(?:SOURCES|TESTS)\b([^)A-Z]*)")


def main(root):
    allowed, torch_free_folders = read_layers(root / "tools/layers.txt")
    files = sorted(p for p in (root / "skein").rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
    includes = {str(p.relative_to(root)): INCLUDE.findall(p.read_text()) for p in files}
    errors = [error for file in includes for error in check_layers(file, includes[file], allowed)]
    for file in includes:
        if file.split("/")[1] in torch_free_folders or file.endswith((".cu", ".cuh")):
            errors += check_torch_free(file, includes)
    for listing in sorted((root / "skein").glob("*/CMakeLists.txt")):
        for names in FORMAT_FILES.findall(re.sub(r"#.*", "", listing.read_text())):
            for name in names.split():
                errors += check_torch_free(f"skein/{listing.parent.name}/{name}", includes)
    return sorted(set(errors))


def read_layers(path):
    rows = re.findall(r"^(\w+):(.*)$", path.read_text(), re.M)
    allowed = {folder: set(others.split()) for folder, others in rows}
    return allowed, allowed.pop("torch_free", set())


def check_layers(file, included, allowed):
    folder = file.split("/")[1]
    if folder not in allowed:
        yield f"{file}: folder '{folder}' has no line in tools/layers.txt"
        return
    for target in included:
        parts = target.split("/")
        if parts[0] == "skein" and parts[1] != folder and not allowed[folder] & {parts[1], "*"}:
            yield f"{file} includes {target}: '{folder}' may not include '{parts[1]}' (tools/layers.txt)"


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
