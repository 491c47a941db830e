#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""How long does a save hold up training?

    benchmarks/save_stall.py SKEIN [--device cuda] [--save-steps 40] [--saves 4] [--work FOLDER]

Trains a Llama of 0.5 billion parameters (bf16 weights, fp32 master and moments: 6.9 GB a checkpoint) with
accumulation 4, logging every step. A record of trainer_log.jsonl tells where the host's time since the one before
went, so the record after a save holds the save and the step beside which it was copied. Printed: the median step
without a save, each step with one, and the difference, which is the stall. --quick: a small model on a CPU.
"""
import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HALF_BILLION = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 151936, "hidden_size": 896,
                "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True,
                "max_position_embeddings": 4096}
SMALL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 128,
         "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


def train(skein, work, args):
    (work / "model").mkdir()
    (work / "model/config.json").write_text(json.dumps(SMALL if args.quick else HALF_BILLION))
    (work / "text.txt").write_text("".join(f"line {i} of a corpus, and {i * i} is its square\n" for i in range(60000)))
    rows, tokens = (2, 64) if args.quick else (16, 1024)
    steps = args.save_steps * args.saves + 5
    command = [skein, "train", f"model_name_or_path={work}/model", "train_from_scratch=true",
               f"train_file={work}/text.txt", f"block_size={tokens}", f"per_device_train_batch_size={rows}",
               "gradient_accumulation_steps=4", f"max_steps={steps}", "logging_steps=1",
               f"save_steps={args.save_steps}", "save_total_limit=1", "learning_rate=1e-4",
               f"output_dir={work}/out", f"device={args.device}", "dtype=" + ("bfloat16" if args.device == "cuda" else "float32")]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return [json.loads(line) for line in (work / "out/trainer_log.jsonl").read_text().splitlines()]


def report(records, save_steps, saves):
    seconds = {r["step"]: sum(v for k, v in r.items() if k.startswith("seconds_") and k != "seconds_communication")
               for r in records}
    warm = 3
    with_save = [save_steps * i + 1 for i in range(1, saves + 1)]
    plain = statistics.median(s for step, s in seconds.items() if step > warm and step not in with_save)
    stalls = [(seconds[step] - plain) * 1e3 for step in with_save if step in seconds]
    print(json.dumps({"step_ms": round(plain * 1e3, 1), "step_with_save_ms":
                      [round(seconds[s] * 1e3, 1) for s in with_save if s in seconds],
                      "stall_ms": [round(s, 1) for s in stalls], "median_stall_ms": round(statistics.median(stalls), 1),
                      "slowest_plain_ms": round(max(s for step, s in seconds.items()
                                                    if step > warm and step not in with_save) * 1e3, 1)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--save-steps", type=int, default=40)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--work", type=Path, help="where the run's folder is made")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.device, args.save_steps, args.saves = "cpu", 4, 2
    work = Path(tempfile.mkdtemp(dir=args.work))
    try:
        report(train(args.skein, work, args), args.save_steps, args.saves)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
