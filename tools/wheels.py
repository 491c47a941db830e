#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Unpacks the wheels of tools/packages.txt into .deps/wheels; does nothing when they are there.

A wheel counts as installed when every file of its RECORD lies there with the recorded size. New ones
go to a temporary folder first and are then moved over, their metadata last: an interrupted run
leaves nothing that counts as installed. (pip's own --target neither merges the nvidia/ folder that
the NVIDIA wheels share nor undoes a half-finished copy.)
"""
import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda", action="store_true", help="also the wheels of a CUDA build")
    parser.add_argument("--packages", type=Path, default=ROOT / "tools/packages.txt")
    parser.add_argument("--target", type=Path, default=ROOT / ".deps/wheels")
    options = parser.parse_args()

    kinds = {"wheel", "wheel-cuda"} if options.cuda else {"wheel"}
    rows = [line.split() for line in options.packages.read_text().splitlines()]
    wanted = [row[1] for row in rows if row and row[0] in kinds]
    missing = [wheel for wheel in wanted if not is_installed(options.target, wheel)]
    if missing:
        print(f"setup: downloading {' '.join(missing)} into {options.target}", flush=True)
        install(missing, options.target)


def metadata(target, wheel):
    """The .dist-info folder of `name==version`."""
    name, version = wheel.split("==")
    return target / f"{name.replace('-', '_')}-{version}.dist-info"


def recorded_files(dist_info):
    """(path, size or None) of each file that the wheel put below the target folder."""
    with open(dist_info / "RECORD", newline="") as record:
        for path, _, size in csv.reader(record):
            # `..` leads to scripts, `.pyc` are made by Python itself; we need neither.
            if not path.startswith("..") and not path.endswith(".pyc"):
                yield path, int(size) if size else None


def is_installed(target, wheel):
    try:
        for path, size in recorded_files(metadata(target, wheel)):
            found = os.stat(f"{target}/{path}").st_size
            if size is not None and found != size:
                return False
    except FileNotFoundError:
        return False
    return True


def install(wheels, target):
    target.mkdir(parents=True, exist_ok=True)
    # Beside the target: moving within one file system copies nothing.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="wheels-") as folder:
        staging = Path(folder) / "wheels"
        run_pip(wheels, staging)
        for wheel in wheels:
            remove_other_versions(target, wheel)
        # Files first, metadata last.
        for entry in sorted(staging.iterdir(), key=lambda path: path.name.endswith(".dist-info")):
            merge(entry, target / entry.name)
    broken = [wheel for wheel in wheels if not is_installed(target, wheel)]
    if broken:
        sys.exit(f"setup: {' '.join(broken)}: files are missing in {target} after installing; "
                 "remove that folder and try again")


def run_pip(wheels, staging):
    # One at a time, each in its own folder: pip skips a folder (nvidia/) that already exists.
    pip = find_pip()
    for wheel in wheels:
        own = staging.parent / wheel
        command = [*pip, "install", "--no-deps", "--no-compile", "--no-input", "--only-binary=:all:",
                   "--disable-pip-version-check", "--progress-bar=off", f"--target={own}", wheel]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode != 0:
            lines = (result.stderr + result.stdout).strip().splitlines() or ["no message"]
            errors = [line for line in lines if line.startswith("ERROR")] or lines
            # With no connection pip only says that it found no version.
            hint = "; is the package index reachable?" if "from versions: none" in result.stderr else ""
            sys.exit(f"setup: cannot download {wheel}: {errors[-1].removeprefix('ERROR: ')}{hint}")
        for entry in own.iterdir():
            merge(entry, staging / entry.name)


def find_pip():
    """pip of this Python, the one on PATH, or one in an environment of our own."""
    own = ROOT / ".deps/pip"
    candidates = [[sys.executable, "-m", "pip"], ["pip3"], ["pip"], [str(own / "bin/pip")]]
    for candidate in candidates:
        if works([*candidate, "--version"]):
            return candidate
    made = works([sys.executable, "-m", "venv", "--clear", str(own)])
    if made and works([*candidates[-1], "--version"]):
        return candidates[-1]
    sys.exit("setup: no pip, and `python3 -m venv` cannot make one; "
             "type: sudo apt-get install python3-venv")


def works(command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except OSError:
        return False


def merge(source, destination):
    """Moves a file or a tree over what is there, replacing files and keeping the others."""
    if source.is_dir():
        destination.mkdir(parents=True, exist_ok=True)
        for entry in source.iterdir():
            merge(entry, destination / entry.name)
    else:
        destination.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, destination)


def remove_other_versions(target, wheel):
    name = wheel.split("==")[0].replace("-", "_")
    for dist_info in target.glob(f"{name}-*.dist-info"):
        if (dist_info / "RECORD").exists():
            for path, _ in recorded_files(dist_info):
                (target / path).unlink(missing_ok=True)
        shutil.rmtree(dist_info, ignore_errors=True)


if __name__ == "__main__":
    main()
