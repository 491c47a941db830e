#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Steps of preferences on a GPU beside TRL's, one JSON row per case.

  benchmarks/preferences.py [CASE...]     default: all; needs a GPU

The 1.24B Llama of benchmarks/gpu.py with random weights in bf16 (fp32 master and moments), 8 pairs of 1024 tokens a step, half of each
the prompt. No activation checkpointing.

  dpo            a frozen copy of the first weights is asked in every step
  dpo_cached     its log-probabilities are kept: asked once, before the first step
  dpo_pure_bf16  dpo with weights, gradients and states in bf16, as TRL's
  dpo_lora       adapters of rank 16 on q, k, v, o; the reference is the model without them
  dpo_unshared   dpo with each prompt computed for both answers
  rm             a reward model
  trl            TRL's dpo, dpo_cached and dpo_lora in bf16, plain and with Liger's loss, then dpo with weights in fp32
                 (benchmarks/peers/trl_steps.py), where TRL is installed

Peaks stand beside what `skein plan` predicts. Ratios to the fastest of TRL's come last. SKEIN_BUILD names the build (default build/cuda).
"""
import json
import random
import sys
import tempfile
from pathlib import Path

import gpu
import rollout

PAIRS, LENGTH = 8, 1024
ROWS = PAIRS * (rollout.WARMUP + rollout.STEPS)
FULL = {"stage": "dpo", "finetuning_type": "full"}
CASES = {
    "dpo": FULL,
    "dpo_cached": FULL | {"precompute_ref_log_probs": True},
    "dpo_pure_bf16": FULL | {"pure_bf16": True},
    "dpo_lora": {"stage": "dpo"} | rollout.LORA,
    "dpo_unshared": FULL | {"share_prompts": False},
    "rm": {"stage": "rm", "finetuning_type": "full"},
}
PEERS = ("dpo", "dpo_cached", "dpo_lora", "dpo_fp32", "dpo_liger", "dpo_cached_liger", "dpo_lora_liger")


def write_pairs(file):
    """A letter is a token, and an end follows each answer."""
    draw, half = random.Random(1), LENGTH // 2
    rollout.write_rows(file, [{"prompt": rollout.letters(draw, half)} |
                              {answer: rollout.letters(draw, half - 1) for answer in ("chosen", "rejected")} for _ in range(ROWS)])


def measure(name, work):
    plan, records = rollout.train(work, name, CASES[name] | {
        "model_name_or_path": str(rollout.base(work)), "train_file": f"{work}/pairs.jsonl", "cutoff_len": LENGTH, "learning_rate": 1e-6,
        "per_device_train_batch_size": PAIRS, "global_batch_size": PAIRS})
    row = rollout.measured(plan, records)
    yield {"case": name, "pairs_per_second": round(PAIRS / row["seconds"], 2), **row}


def trl(work):
    return rollout.peer("trl_steps.py", work / "model", *PEERS)


def summary(rows):
    for kind in ("dpo", "dpo_cached", "dpo_lora"):
        peers = [row for name, row in rows.items() if name in (f"TRL, {kind}", f"TRL, {kind}_liger") and "failed" not in row]
        if peers and kind in rows and "failed" not in rows[kind]:
            fastest = max(peer["pairs_per_second"] for peer in peers)
            least = min(peer["peak_gib"] for peer in peers)
            yield {"case": f"{kind} against TRL", "ratio": round(rows[kind]["pairs_per_second"] / fastest, 2),
                   "memory": round(rows[kind]["peak_gib"] / least, 2)}


def main():
    asked = sys.argv[1:] or [*CASES, "trl"]
    if unknown := set(asked) - {*CASES, "trl"}:
        sys.exit(f"preferences.py: no case {', '.join(sorted(unknown))}\n{__doc__}")
    rows, failures = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rollout.write_model(work / "model", gpu.LLAMA_1B)
        write_pairs(work / "pairs.jsonl")
        for name in asked:
            case = trl if name == "trl" else lambda work, name=name: measure(name, work)
            for row in rollout.tried(case, name, work):
                failures += "failed" in row
                rows[row["case"]] = row
                print(json.dumps(row), flush=True)
    for row in summary(rows):
        print(json.dumps(row), flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
