#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What `skein plan` predicts of a GPU's memory beside what three steps of `skein train` take, one JSON row per case.

  benchmarks/plan_truth.py [CASE...]     default: all; needs a GPU

The prediction is `peak_estimate` (without the margin), the truth the most that torch's allocator held. Exit code 1 where one of
them is off by more than 10 %. SKEIN_BUILD names the build (default build/cuda).
"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu

SKEIN = gpu.SKEIN
LORA = ["finetuning_type=lora", "lora_rank=16", "lora_target=q_proj,k_proj,v_proj,o_proj"]
CASES = {  # config.json, rows, tokens of a row, further keys
    "gpt2": (gpu.GPT2, 16, 1024),
    "llama_1b": (gpu.LLAMA_1B, 4, 4096),
    "llama_1b_checkpointing": (gpu.LLAMA_1B, 4, 4096, "gradient_checkpointing=true"),
    "llama_1b_accumulated": (gpu.LLAMA_1B, 2, 4096, "gradient_accumulation_steps=2"),
    "llama_1b_offload": (gpu.LLAMA_1B, 4, 4096, "offload_optimizer=cpu"),
    "llama_1b_offload_param": (gpu.LLAMA_1B, 4, 4096, "distributed_strategy=zero3", "offload_param=cpu"),
    "llama_1b_8bit": (gpu.LLAMA_1B, 4, 4096, "optim=adamw_8bit"),
    "llama_1b_pure_bf16": (gpu.LLAMA_1B, 4, 4096, "pure_bf16=true"),
    "lora_1b": (gpu.LLAMA_1B, 4, 4096, *LORA),
    "lora_1b_4bit": (gpu.LLAMA_1B, 4, 4096, *LORA, "quantization_bit=4"),
    "llama_8b_auto": (gpu.LLAMA_8B, 1, 4096, "distributed_strategy=auto", "gradient_checkpointing=true", "learning_rate=5e-6"),
    "llama_14b_auto": (gpu.LLAMA_14B, 1, 4096, "distributed_strategy=auto", "gradient_checkpointing=true", "learning_rate=5e-6"),
}


def make_weights(folder, work):
    """Adapters need weights to stand beside: those of a run of one step."""
    base = work / "base"
    if not base.exists():
        run(["train", *words(folder, work, 1, 64), "train_from_scratch=true", "max_steps=1", f"output_dir={base}"])
    return base


def words(folder, work, rows, tokens):
    return [f"model_name_or_path={folder}", "tokenizer_name_or_path=bytes", f"train_file={work / 'text.txt'}",
            f"block_size={tokens}", f"per_device_train_batch_size={rows}", "logging_steps=1", "save_strategy=no", "report_to=none"]


def run(arguments):
    done = subprocess.run([SKEIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return done.stdout


def compare(name, work):
    config, rows, tokens, *keys = CASES[name]
    folder, out = work / f"{name}-model", work / f"{name}-out"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    model = make_weights(folder, work) if LORA[0] in keys else folder
    scratch = [] if model != folder else ["train_from_scratch=true"]
    asked = [*words(model, work, rows, tokens), *scratch, *keys, "max_steps=3", f"output_dir={out}"]
    plan = json.loads(run(["plan", *asked, "--json"]))
    chosen = next(stage for stage in plan["model"]["memory_per_rank"] if stage["chosen"])
    run(["train", *asked])
    records = [json.loads(line) for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    truth = max(record.get("gpu_bytes_peak", 0) for record in records)
    losses = [record["loss"] for record in records if "loss" in record]
    return {"case": name, "predicted_gib": round(chosen["peak_estimate"] / 2**30, 2), "truth_gib": round(truth / 2**30, 2),
            "ratio": round(chosen["peak_estimate"] / truth, 3), "host_gib": round(chosen["offloaded_host"] / 2**30, 2),
            "losses": losses}


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "text.txt").write_text("".join(f"line {i} of a small corpus, {i * i} is its square\n" for i in range(60000)))
        wrong = 0
        for name in sys.argv[1:] or CASES:
            try:
                row = compare(name, work)
            except RuntimeError as error:  # the other cases are of use without it
                row = {"case": name, "ratio": 0, "failed": str(error)}
            wrong += abs(row["ratio"] - 1) > 0.1
            print(json.dumps(row), flush=True)
            shutil.rmtree(work / f"{name}-out", ignore_errors=True)  # of 16 GB with 8B
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
