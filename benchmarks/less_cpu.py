#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Gradient features on CPUs and disks, one JSON row per case.

  benchmarks/less_cpu.py ranks    rows per second of two ranks against two collections of one rank each, side by side
  benchmarks/less_cpu.py files    50,000 x 8,192 rows merged, and scored against 100: resident memory, and bytes per second beside
                                  the raw rate of the same disk (of the temporary folder, or of TMPDIR; 8 GB of room), and beside
                                  its rate of new files, which may be a third of it; root drops the page cache before each

Run them on a quiet machine. SKEIN_BUILD names the build (default build/release).
"""
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release")) / "bin/skein"
sys.path.insert(0, str(ROOT / "tests/ranks"))

from harness import ChatWorkspace, llama  # noqa: E402


def run(*arguments):
    """Seconds, and the most that one process of it had resident, in MiB."""
    begin = time.perf_counter()
    process = subprocess.Popen([SKEIN, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"less_cpu.py: {' '.join(map(str, arguments))}\n{said[-2000:]}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def make_work(rows, hidden):
    work = ChatWorkspace(llama(vocab_size=260, hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=2,
                               num_key_value_heads=2, max_position_embeddings=256), num_rows=8, dtype="float32")
    work.run("output_dir=base", "max_steps=1", "save_strategy=no")
    rng = random.Random(1)
    work.write_rows([{"messages": [{"role": "user", "content": f"{rng.randrange(10**9)}"},
                                   {"role": "assistant", "content": f"{rng.randrange(10**9)}"}]} for _ in range(rows)])
    return work


def collect(work, output, rows, ranks, *words):
    return run("gradients", "collect", "--train_file", work / "chat.jsonl", "--template", "chatml", "--model", work / "base",
               "--initialize_lora", "--gradient_type", "sgd", "--max_length", 128, "--max_samples", rows, "--output_path",
               work / output, "device=cpu", f"data_cache_dir={work.folder}/cache", "--nproc-per-node", ranks, *words)[0]


def two_ranks(rounds=3):
    """By differences of two numbers of rows, so that starting does not count; the kinds take turns."""
    few, many = 256, 1280
    ratios, rates = [], []
    with make_work(2 * many, hidden=64) as work:
        collect(work, "warm", few, 1)

        def side_by_side(name, rows):
            with ThreadPoolExecutor(2) as pool:
                return max(pool.map(lambda side: collect(work, f"{name}{side}", rows, 1), "ab"))

        for i in range(rounds):
            alone = side_by_side(f"many{i}", many) - side_by_side(f"few{i}", few)
            together = collect(work, f"ranks-many{i}", 2 * many, 2) - collect(work, f"ranks-few{i}", 2 * few, 2)
            ratios.append(alone / together)
            rates.append(2 * (many - few) / together)
    return {"case": "two ranks against two collections side by side", "ratio": round(statistics.median(ratios), 4),
            "rounds": [round(ratio, 4) for ratio in ratios], "rows_per_second": round(statistics.median(rates), 1)}


def drop_caches():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def new_file_rate(folder, bytes_of_each, count=3):
    """Of files side by side that were not there, written past the page cache by whoever does nothing else."""
    piece = mmap.mmap(-1, 8 << 20)  # begins at a page
    piece.write(random.randbytes(len(piece)))
    places = range(0, bytes_of_each - len(piece) + 1, len(piece))

    def write(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT)
        for place in places:
            os.pwrite(descriptor, piece, place)
        os.fsync(descriptor)
        os.close(descriptor)

    paths = [folder / f"new-{i}" for i in range(count)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(write, paths))
    seconds = time.perf_counter() - begin
    for path in paths:
        path.unlink()
    return count * len(places) * len(piece) / seconds


def files():
    rows, dimension = 50_000, 8_192
    with make_work(rows, hidden=8) as work:
        words = ("--lora_r", 1, "--gradient_projection_dimension", dimension)
        collect(work, "train", rows, 2, *words)
        collect(work, "dev", 100, 1, *words)
        raw = json.loads(subprocess.run([SKEIN, "bench", "disk", "--path", work.folder, "--bytes", str(1 << 30), "--rounds", "2"],
                                        stdout=subprocess.PIPE, text=True, check=True).stdout)
        run("gradients", "merge", work / "dev")
        size = rows * dimension * 4
        new_rate = new_file_rate(work.folder, size)
        drop_caches()
        merged, merge_mib = run("gradients", "merge", work / "train")
        # Collecting has written the ranks' own gradients.pt: merging does not.
        written = sum(path.stat().st_size for path in (work / "train").rglob("*") if path.name == "gradients.safetensors" or
                      (path.suffix == ".pt" and path.name != "gradients.pt"))
        drop_caches()
        scored, score_mib = run("gradients", "score", "--train", work / "train", "--validation", work / "dev", "--weights", 1,
                                "--out", work / "scores", "--name", "train")
        least = size / raw["raw_read_bytes_per_second"] + written / raw["raw_write_bytes_per_second"]
        return {"case": "50,000 x 8,192 rows", "merge_seconds": round(merged, 1), "merge_mib": round(merge_mib),
                "merge_bytes": [size, written], "merge_of_disk": round(least / merged, 3),
                "new_file_bytes_per_second": round(new_rate),
                "merge_of_new_files": round((size / raw["raw_read_bytes_per_second"] + written / new_rate) / merged, 3),
                "score_seconds": round(scored, 1), "score_mib": round(score_mib),
                "score_of_disk": round(size / raw["raw_read_bytes_per_second"] / scored, 3), "disk": raw}


CASES = {"ranks": two_ranks, "files": files}


def main():
    unknown = set(sys.argv[1:]) - set(CASES)
    if unknown:
        sys.exit(f"less_cpu.py: no case {', '.join(sorted(unknown))}\n{__doc__}")
    for name in sys.argv[1:] or CASES:
        print(json.dumps(CASES[name]()), flush=True)


if __name__ == "__main__":
    main()
