# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same prompts continued by transformers: a dynamic cache, a static one whose step is compiled, and continuous batching.

  generate.py MODEL PROMPT_TOKENS NEW_TOKENS KIND:ROWS...     KIND: dynamic, static, continuous

MODEL is a folder with config.json; its weights are drawn. Every row gets all NEW_TOKENS, sampled at temperature 1. Prints one JSON
object per case: tokens per second of the second call, and how long the first one took, which compiles.
"""
import json
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig


def forced(tokens):
    return dict(max_new_tokens=tokens, do_sample=True, pad_token_id=0)


def generate(model, prompts, tokens, **more):
    def work():
        with torch.inference_mode():
            model.generate(prompts, attention_mask=torch.ones_like(prompts), min_new_tokens=tokens, eos_token_id=None, **forced(tokens),
                           **more)
    return work


def continuous(model, prompts, tokens):
    for name in ("paged|sdpa", "sdpa_paged"):  # what this version of transformers calls it
        try:
            model.set_attn_implementation(name)
            break
        except (ValueError, ImportError, KeyError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    config = GenerationConfig(eos_token_id=-1, **forced(tokens))
    rows = [row.tolist() for row in prompts]

    def work():
        made = model.generate_batch(inputs=rows, generation_config=config, progress_bar=False)
        count = sum(len(one.generated_tokens) for one in made.values())
        if count != len(rows) * tokens:  # requests that fail are only logged
            raise RuntimeError(f"made {count} tokens of {len(rows) * tokens}")
    return work


def timed(work):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(model, kind, rows, prompt_tokens, new_tokens):
    torch.manual_seed(0)
    prompts = torch.randint(0, model.config.vocab_size, (rows, prompt_tokens), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    try:
        if kind == "continuous":
            work = continuous(model, prompts, new_tokens)
        else:
            work = generate(model, prompts, new_tokens, **({"cache_implementation": "static"} if kind == "static" else {}))
        first, second = timed(work), timed(work)
    finally:
        if kind == "continuous":
            model.set_attn_implementation("sdpa")
    return {"tokens_per_second": round(rows * new_tokens / second), "seconds": round(second, 2), "first_seconds": round(first, 2),
            "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}


def main():
    folder, prompt_tokens, new_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = AutoConfig.from_pretrained(folder)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").bfloat16().eval()
    for case in sys.argv[4:]:
        kind, rows = case.split(":")
        row = {"case": f"transformers, {kind}", "rows": int(rows), "prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
        try:
            row |= measure(model, kind, int(rows), prompt_tokens, new_tokens)
        except Exception as error:  # the other cases are of use without it
            row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        torch.compiler.reset()


if __name__ == "__main__":
    main()
