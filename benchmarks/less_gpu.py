#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Gradient features on a GPU: how fast `skein gradients collect` is, one JSON row per case.

  benchmarks/less_gpu.py [--batch-tokens 8192,32768] [--rows 4096] [CASE...]     default: all; needs a GPU

A 1.24B Llama of random weights in bf16, a fresh adapter of rank 128 on q, k, v, o (27.3M elements), rows of 512 tokens that
are all trained on.

  plain        forward and backward of the adapter in batches of 32 rows, no features (`skein bench train --lora 128`)
  dense        rows projected to 8,192 dimensions by random signs, in batches of so many tokens each; then the fastest again
               with all rows, whose peak is held against that of 256 rows
  narrow       the same to 128 dimensions: what it takes less is the projection's time, and its TFLOP/s follow (both bf16 terms of a
               gradient counted)
  factorised   `--projection factorised`

Rows per second are those of the difference between 256 and 1,280 rows, so that loading does not count. Peaks are of the whole
GPU by nvidia-smi, less what was taken before. Ratios to `plain` and the projection's share come last. SKEIN_BUILD names the build
(default build/cuda).
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu

sys.path.insert(0, str(gpu.ROOT / "tests/ranks"))

from harness import Workspace  # noqa: E402

TOKENS, RANK, ALPHA, DIMENSION, NARROW = 512, 128, 512, 8192, 128
FEW, MORE = 256, 1280
CASES = {  # further flags, dimension
    "dense": ((), DIMENSION),
    "narrow": ((), NARROW),
    "factorised": (("--projection", "factorised"), DIMENSION),
}


def run(*arguments):
    done = subprocess.run([gpu.SKEIN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return done.stdout


def make_model(work):
    """Weights are those of a run of one step; every byte of a row is a token."""
    (work / "model").mkdir()
    (work / "model/config.json").write_text(json.dumps(gpu.LLAMA_1B))
    Workspace.write_tokenizer(work)  # into work/model
    (work / "text.txt").write_text("a few letters\n" * 100)
    run("train", f"model_name_or_path={work}/model", "train_from_scratch=true", f"train_file={work}/text.txt", "block_size=64",
        "per_device_train_batch_size=1", "max_steps=1", "save_strategy=no", "report_to=none", f"data_cache_dir={work}/cache",
        f"output_dir={work}/base")


def make_rows(work, count):
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    with open(work / "rows.jsonl", "w") as rows:
        for _ in range(count):
            rows.write(json.dumps({"text": "".join(rng.choices(letters, k=TOKENS + 50))}) + "\n")  # cut to TOKENS


class PeakMemory:
    """The most that the GPU held while it was open, less what it held before."""

    def __enter__(self):
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
        self.before = int(subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True).stdout)
        self.watch = subprocess.Popen([*query, "-lms", "100"], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.watch.terminate()
        used = [int(word) for word in self.watch.communicate()[0].split() if word.isdigit()]
        self.gib = round((max(used, default=self.before) - self.before) / 1024, 2)


def collect(name, rows, batch_tokens, work):
    """Seconds and GiB."""
    flags, dimension = CASES[name]
    output = work / f"{name}-{rows}-{batch_tokens}"
    begin = time.perf_counter()
    with PeakMemory() as peak:
        run("gradients", "collect", "--train_file", work / "rows.jsonl", "--model", work / "base", "--initialize_lora", "--lora_r",
            RANK, "--lora_alpha", ALPHA, "--gradient_type", "sgd", "--gradient_projection_dimension", dimension, "--max_length",
            TOKENS, "--max_samples", rows, "--batch_tokens", batch_tokens, "--output_path", output, "device=cuda",
            "dtype=bfloat16", f"data_cache_dir={work}/cache", *flags)
    return time.perf_counter() - begin, peak.gib


def plain(work):
    row = json.loads(run("bench", "train", work / "model", "--batch", 32, "--tokens", TOKENS, "--lora", RANK, "--steps", 10))
    return {"case": "plain", "rows_per_second": round(row["tokens_per_second"] / TOKENS, 1), "adapter": row["trainable"],
            "peak_gib": round(row["peak_device_bytes"] / 2**30, 2)}


def measure(name, batch_tokens, work):
    few, more = (collect(name, rows, batch_tokens, work) for rows in (FEW, MORE))
    return {"case": name, "batch_tokens": batch_tokens, "rows_per_second": round((MORE - FEW) / (more[0] - few[0]), 1),
            "seconds": [round(few[0], 1), round(more[0], 1)], "peak_gib": [few[1], more[1]]}


def measure_all(name, few, count, work):
    """`few` is a row of measure(): its peak is that of few rows."""
    seconds, gib = collect(name, count, few["batch_tokens"], work)
    return {"case": f"{name}, {count} rows", "rows_per_second": round((count - FEW) / (seconds - few["seconds"][0]), 1),
            "peak_gib": gib, "peak_to_that_of_256": round(gib / few["peak_gib"][0], 3)}


def summary(rows):
    alone, dense, narrow = (rows.get(name) for name in ("plain", "dense", "narrow"))
    if alone:
        for name in ("dense", "factorised"):
            if name in rows:
                yield {"case": f"{name}: time against plain forward and backward",
                       "ratio": round(alone["rows_per_second"] / rows[name]["rows_per_second"], 3)}
    if alone and dense and narrow:
        seconds = 1 / dense["rows_per_second"]
        projection = (seconds - 1 / narrow["rows_per_second"]) * DIMENSION / (DIMENSION - NARROW)
        flops = 2 * 2 * alone["adapter"] * DIMENSION
        yield {"case": "projection", "share": round(projection / seconds, 3), "tflops": round(flops / projection / 1e12, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-tokens", default="8192,32768", help="the fastest counts for the other cases")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("case", nargs="*", help=", ".join(["plain", *CASES]))
    args = parser.parse_args()
    if unknown := set(args.case) - {"plain", *CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}")
    sizes = [int(size) for size in args.batch_tokens.split(",")]
    rows, failures = {}, 0

    def tried(work, *arguments):
        nonlocal failures
        try:
            row = work(*arguments)
        except RuntimeError as error:  # the other cases are of use without it
            failures += 1
            row = {"case": arguments[0] if len(arguments) > 1 else "plain", "failed": str(error)}
        print(json.dumps(row), flush=True)
        return row if "failed" not in row else None

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_model(folder)
        make_rows(folder, max(args.rows, MORE))
        for name in args.case or ["plain", *CASES]:
            if name == "plain":
                found = [tried(plain, folder)]
            else:
                best = rows["dense"]["batch_tokens"] if "dense" in rows else sizes[-1]
                found = [tried(measure, name, size, folder) for size in (sizes if name == "dense" else [best])]
            found = [row for row in found if row]
            if not found:
                continue
            rows[name] = max(found, key=lambda row: row["rows_per_second"])
            if name == "dense" and args.rows > MORE:
                tried(measure_all, name, rows[name], args.rows, folder)
        for row in summary(rows):
            print(json.dumps(row), flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
