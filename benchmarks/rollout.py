#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""How fast skein writes, and learns from what it writes, on a GPU, one JSON row per case.

  benchmarks/rollout.py [--new-tokens 512] [CASE...]     default: all; needs a GPU

The 0.5B Llama of benchmarks/gpu.py (151,936 words, tied) with random weights in bf16, prompts of 128 tokens; every row gets all its
new tokens.

  sampled_64, sampled_256    `skein bench rollout`: so many rows at once, temperature 1
  greedy_64, greedy_256      the same at temperature 0
  generate_64, generate_256  `skein generate` continues 256 prompts, so many at once, and makes text of them
  transformers               dynamic cache with 64 and 256 rows, compiled static cache with 64 (benchmarks/peers/generate.py)
  continuous                 transformers' continuous batching, 64 rows (slow)
  grpo                       `skein train`, stage grpo: 8 prompts x 8 completions of 256 tokens, one update; the median step by phases
  grpo_lora                  the same with adapters of rank 16 on q, k, v, o
  trl                        TRL's step (benchmarks/peers/trl_steps.py), where TRL is installed

A limit of bandwidth is that of the decode steps alone: each reads the weights and the keys and values of all rows so far, at
--bandwidth bytes per second (4.8e12, an H200's). Ratios of the same call come last. SKEIN_BUILD names the build (default build/cuda).
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu

sys.path.insert(0, str(gpu.ROOT / "tests/ranks"))

from harness import byte_letters  # noqa: E402

PEERS = Path(__file__).resolve().parent / "peers"
HALF_B = gpu.CASES["half_b"][0]
PROMPTS, PROMPT, COMPLETION = 256, 128, 256
GROUPS, GENERATIONS = 8, 8
WARMUP, STEPS = 3, 8
END = "<|im_end|>"
LORA = {"finetuning_type": "lora", "lora_rank": 16, "lora_target": ["q_proj", "k_proj", "v_proj", "o_proj"]}
BENCH = {f"{way}_{rows}": (rows, temperature) for way, temperature in (("sampled", 1), ("greedy", 0)) for rows in (64, 256)}
GRPO = {"grpo": {"finetuning_type": "full"}, "grpo_lora": LORA}


def run(*arguments, **more):
    done = subprocess.run(list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return done


def skein(*arguments):
    return run(gpu.SKEIN, *arguments)


def rows_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def peer(script, *arguments):
    """The rows of one of benchmarks/peers as they come; what it says beside them goes to stderr."""
    command = [sys.executable, str(PEERS / script), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield from rows_of(line)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def write_tokenizer(folder, size, end=True):
    """Each byte is a token, every other id a number of ten digits, the last one ends a text unless `end` is false."""
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    vocabulary |= {f"{i * 2654435761 % 2**32:010d}": i for i in range(256, size - 1)}
    added = {"id": size - 1, "content": END, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
    of_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
        "pre_tokenizer": of_bytes, "post_processor": None, "decoder": of_bytes,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast"} | ({"eos_token": END} if end else {})))


def write_model(folder, config, end=True):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, config["vocab_size"], end)
    return folder


def base(work):
    """work/model with the weights of a run of one step, made when it is first needed."""
    folder = work / "base"
    if not folder.exists():
        (work / "text.txt").write_text("a few letters\n" * 100)
        skein("train", f"model_name_or_path={work}/model", "train_from_scratch=true", f"train_file={work}/text.txt", "block_size=64",
              "per_device_train_batch_size=1", "max_steps=1", "save_strategy=no", "report_to=none", f"data_cache_dir={work}/cache",
              f"output_dir={folder}")
    return folder


def endless(work, config):
    """The same weights, and nothing that ends a text."""
    folder = work / "endless"
    if not folder.exists():
        weights = base(work).glob("model*.safetensors*")
        write_model(folder, config, end=False)
        for file in weights:
            os.link(file, folder / file.name)
    return folder


def letters(draw, count):
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=count))


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def parameters(config):
    """Of a Llama with a tied head: what a decode step reads of it."""
    width, inner, heads = (config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    of_keys = width // heads * config["num_key_value_heads"]
    block = 2 * width * width + 2 * width * of_keys + 3 * width * inner + 2 * width
    return config["vocab_size"] * width + config["num_hidden_layers"] * block + width


def limit(config, rows, prompt_tokens, new_tokens, bandwidth):
    """Tokens per second of decode steps that only read: bf16 weights, and keys and values at the mean length."""
    head = config["hidden_size"] // config["num_attention_heads"]
    of_token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head
    step = 2 * parameters(config) + rows * (prompt_tokens + new_tokens / 2) * of_token
    return rows * bandwidth / step


def shares(row, config, bandwidth):
    most = limit(config, row["rows"], row["prompt_tokens"], row["new_tokens"], bandwidth)
    return row | {"limit_tokens_per_second": round(most), "of_limit": round(row["tokens_per_second"] / most, 3)}


def bench(name, args, work):
    rows, temperature = BENCH[name]
    [row] = rows_of(skein("bench", "rollout", work / "model", "--rows", rows, "--prompt-tokens", PROMPT, "--new-tokens",
                          args.new_tokens, "--temperature", temperature, "--json").stdout)
    return shares({"case": name, **row}, HALF_B, args.bandwidth)


def generate(name, args, work):
    rows, folder = int(name.removeprefix("generate_")), endless(work, HALF_B)
    begin = time.perf_counter()
    done = skein("generate", folder, "--prompt-file", work / "texts.jsonl", "--batch-size", rows, "--max-new-tokens",
                 args.new_tokens, "--temperature", 1, "--dtype", "bfloat16", "--json")
    whole = time.perf_counter() - begin
    made = sum(row["num_new_tokens"] for row in rows_of(done.stdout))
    if made != PROMPTS * args.new_tokens:
        raise RuntimeError(f"{name}: {made} tokens, not {PROMPTS * args.new_tokens}")
    seconds = float(re.search(r"generated \d+ tokens in ([\d.]+) s", done.stderr)[1])
    return shares({"case": name, "rows": rows, "prompt_tokens": PROMPT, "new_tokens": args.new_tokens,
                   "tokens_per_second": round(made / seconds), "seconds": seconds, "command_seconds": round(whole, 1)}, HALF_B,
                  args.bandwidth)


def transformers(cases, args, work):
    for row in peer("generate.py", work / "model", PROMPT, args.new_tokens, *cases):
        yield row if "failed" in row else shares(row, HALF_B, args.bandwidth)


def train(work, name, keys):
    """A run of a few steps; its plan and the lines of its log."""
    recipe, output = work / f"{name}.yaml", work / f"{name}-out"
    keys = {"device": "cuda", "dtype": "bfloat16", "max_steps": WARMUP + STEPS, "logging_steps": 1, "save_strategy": "no",
            "report_to": "none", "data_cache_dir": f"{work}/cache", "output_dir": str(output)} | keys
    recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))  # JSON is YAML
    plan = json.loads(skein("plan", recipe, "--json").stdout)
    skein("train", recipe)
    return plan, [json.loads(line) for line in (output / "trainer_log.jsonl").read_text().splitlines()]


def measured(plan, records):
    """The median step by phases, and memory beside what was planned. Phases end where the host waits for the GPU."""
    steps = [record for record in records if "loss" in record][WARMUP:]
    names = [name for name in steps[0] if name.startswith("seconds_") and name != "seconds_communication"]
    seconds = statistics.median(sum(step[name] for name in names) for step in steps)
    phases = {name.removeprefix("seconds_"): round(statistics.median(step[name] for step in steps), 4) for name in names}
    chosen = next(stage for stage in plan["model"]["memory_per_rank"] if stage["chosen"])
    return {"seconds": round(seconds, 4), "phases": {name: value for name, value in phases.items() if value},
            "peak_gib": round(max(step.get("gpu_bytes_peak", 0) for step in steps) / 2**30, 2),
            "predicted_gib": round(chosen["peak_estimate"] / 2**30, 2)}


def grpo(name, work):
    plan, records = train(work, name, GRPO[name] | {
        "stage": "grpo", "model_name_or_path": str(base(work)), "train_file": f"{work}/prompts.jsonl", "reward_funcs": ["regex:^[01]"],
        "num_generations": GENERATIONS, "per_device_train_batch_size": GROUPS * GENERATIONS, "max_prompt_length": PROMPT,
        "global_batch_size": GROUPS * GENERATIONS, "max_completion_length": COMPLETION, "learning_rate": 1e-6})
    row = measured(plan, records)
    last = [record for record in records if "loss" in record][-1]
    told = {key: last[key] for key in ("completions/mean_length", "reward", "sampling/sampling_logp_difference/mean") if key in last}
    rollout = row["phases"].get("rollout")
    return {"case": name, **row, "rollout_tokens_per_second": rollout and round(GROUPS * GENERATIONS * COMPLETION / rollout), **told}


def trl(work):
    return peer("trl_steps.py", work / "model", "grpo")


def tried(case, name, work):
    """Its rows; the other cases are of use without it."""
    try:
        yield from case(work)
    except Exception as error:
        yield {"case": name, "failed": f"{type(error).__name__}: {error}"}


def summary(rows):
    """Against the fastest peer of the same call."""
    def best(names, key, pick):
        return pick((rows[name][key] for name in names if name in rows and rows[name].get(key)), default=None)

    for count in (64, 256):
        peers = [name for name, row in rows.items() if name.startswith("transformers") and row.get("rows") == count]
        own, theirs = best([f"sampled_{count} {count}"], "tokens_per_second", max), best(peers, "tokens_per_second", max)
        if own and theirs:
            yield {"case": f"{count} rows against the fastest of transformers", "ratio": round(own / theirs, 2)}
    own, theirs = best(["grpo"], "seconds", min), best(["TRL, grpo"], "seconds", min)
    if own and theirs:
        yield {"case": "a step of GRPO against TRL's", "ratio": round(theirs / own, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new-tokens", type=int, default=512)
    parser.add_argument("--bandwidth", type=float, default=4.8e12)
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    known = {name: lambda work, name=name: [bench(name, args, work)] for name in BENCH}
    known |= {f"generate_{rows}": lambda work, rows=rows: [generate(f"generate_{rows}", args, work)] for rows in (64, 256)}
    known["transformers"] = lambda work: transformers(["dynamic:64", "dynamic:256", "static:64"], args, work)
    known["continuous"] = lambda work: transformers(["continuous:64"], args, work)
    known |= {name: lambda work, name=name: [grpo(name, work)] for name in GRPO}
    known["trl"] = trl
    if unknown := set(args.case) - set(known):
        parser.error(f"no case {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    rows, failures = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        work, draw = Path(folder), random.Random(1)
        write_model(work / "model", HALF_B)
        texts = [letters(draw, PROMPT) for _ in range(PROMPTS)]
        write_rows(work / "texts.jsonl", [{"text": text} for text in texts])
        write_rows(work / "prompts.jsonl", [{"prompt": text} for text in texts])
        for name in args.case or known:
            for row in tried(known[name], name, work):
                failures += "failed" in row
                rows[f"{row['case']} {row.get('rows', '')}".strip()] = row
                print(json.dumps(row), flush=True)
    for row in summary(rows):
        print(json.dumps(row), flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
