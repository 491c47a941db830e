#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""GPU figures of skein's training step, one JSON row per case: `skein bench train` on known shapes.

  benchmarks/gpu.py [CASE...]     default: all

  gpt2          GPT-2 124M with its real 50,257 words, 64 x 1024
  gpt2_padded   the same with 50,304: what the real vocabulary is held to (2 %)
  llama_1b      Llama 1.24B, 128,256 words, tied, 4 x 4096
  half_b        0.5B with 151,936 words, 16 x 1024
  lora_1b       that Llama with adapters of rank 16 on q, k, v, o; packs of documents of 256 to 2047 tokens, 4 x 4096
  lora_1b_half  the same with half of the targets masked
  sft_1b        that Llama whole, in the same packs
  lora_gemma3   Gemma 3 1B (windows of 512, 262,144 words), adapters as above
  offload       llama_1b with optimizer states in host memory (offload_plain: 10 steps without), _unclipped,
                _accumulated (4 micro-batches; offload_accumulated_plain: without offload), _half (of the states),
                _param (shards of the weights too)
  qlora_8b      Llama 8B in 4 bits, adapters of rank 16, 2 x 4096; _recompute: with activation checkpointing
  long_8b       the same in 16 bits, one row of 131,072 tokens, inputs of recomputed blocks in host memory

SKEIN_BUILD names the build (default build/cuda).
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/cuda")) / "bin/skein"

GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}
LLAMA = {"model_type": "llama", "max_position_embeddings": 4096, "tie_word_embeddings": True}
LLAMA_1B = {**LLAMA, "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 32, "num_key_value_heads": 8}
GEMMA3_1B = {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
             "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
             "query_pre_attn_scalar": 256, "sliding_window": 512, "max_position_embeddings": 32768}
LLAMA_8B = {**LLAMA, "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False}
LLAMA_14B = {**LLAMA_8B, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40}
ADAPTERS = ("--lora", "16", "--packed")
FEW = ("--steps", "8", "--warmup", "3")
CASES = {  # config.json, rows, tokens of a row, further flags
    "gpt2": (GPT2, 64, 1024),
    "gpt2_padded": ({**GPT2, "vocab_size": 50304}, 64, 1024),
    "llama_1b": (LLAMA_1B, 4, 4096),
    "half_b": ({**LLAMA, "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
                "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}, 16, 1024),
    "lora_1b": (LLAMA_1B, 4, 4096, *ADAPTERS),
    "lora_1b_half": (LLAMA_1B, 4, 4096, *ADAPTERS, "--masked", "0.5"),
    "sft_1b": (LLAMA_1B, 4, 4096, "--packed"),
    "lora_gemma3": (GEMMA3_1B, 4, 4096, *ADAPTERS),
    "offload_plain": (LLAMA_1B, 4, 4096, *FEW),
    "offload": (LLAMA_1B, 4, 4096, *FEW, "--offload"),
    "offload_unclipped": (LLAMA_1B, 4, 4096, *FEW, "--offload", "--no-clipping"),
    "offload_accumulated_plain": (LLAMA_1B, 4, 4096, *FEW, "--accumulation", "4"),
    "offload_accumulated": (LLAMA_1B, 4, 4096, *FEW, "--accumulation", "4", "--offload"),
    "offload_half": (LLAMA_1B, 4, 4096, *FEW, "--offload", "--offload-ratio", "0.5"),
    "offload_param": (LLAMA_1B, 4, 4096, *FEW, "--zero", "3", "--offload-param"),
    "qlora_8b": (LLAMA_8B, 2, 4096, *FEW, "--lora", "16", "--4bit"),
    "qlora_8b_recompute": (LLAMA_8B, 2, 4096, *FEW, "--lora", "16", "--4bit", "--recompute"),
    "long_8b": ({**LLAMA_8B, "max_position_embeddings": 131072}, 1, 131072, "--steps", "2", "--warmup", "1",
                "--lora", "16", "--offload-activations"),
}


def bench(name, work):
    config, batch, tokens, *flags = CASES[name]
    folder = work / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if "--steps" not in flags:
        flags += ["--steps", "20"]
    command = [SKEIN, "bench", "train", folder, "--batch", str(batch), "--tokens", str(tokens), *flags]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(out.stdout)
    return {"case": name, **row, "model": name, "peak_gib": round(row["peak_device_bytes"] / 2**30, 2)}


def main():
    unknown = set(sys.argv[1:]) - set(CASES)
    if unknown:
        sys.exit(f"gpu.py: no case {', '.join(sorted(unknown))}\n{__doc__}")
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for name in sys.argv[1:] or CASES:
            rows[name] = bench(name, Path(folder))
            print(json.dumps(rows[name]), flush=True)
    if {"gpt2", "gpt2_padded"} <= set(rows):
        ratio = rows["gpt2"]["tokens_per_second"] / rows["gpt2_padded"]["tokens_per_second"]
        print(json.dumps({"case": "real against padded vocabulary", "ratio": round(ratio, 4)}))


if __name__ == "__main__":
    main()
