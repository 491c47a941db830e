# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same steps with TRL's trainers, one JSON object per case.

  trl_steps.py MODEL CASE...

  grpo                8 prompts of 128 tokens x 8 completions of 256, one update; generation by transformers
  dpo                 8 pairs of 1024 tokens, half of each the prompt; weights in bf16, a second model as reference
  dpo_cached          the same with the reference's log-probabilities kept (asked before the first step, and not timed)
  dpo_lora            adapters of rank 16 on q, k, v, o
  …_liger             dpo, dpo_cached or dpo_lora with Liger's loss
  …_checkpointing     any of them with gradient checkpointing, which is TRL's default
  …_fp32              any of them with weights in fp32 under autocast, which is TRL's default

MODEL is a folder with config.json; its weights are drawn. Seconds are medians of steps after the first ones.
"""
import contextlib
import copy
import json
import os
import random
import statistics
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback  # noqa: E402

PROMPTS, GENERATIONS, PROMPT, COMPLETION = 8, 8, 128, 256
PAIRS, LENGTH = 8, 1024
SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>")
WARMUP, STEPS = 3, 8
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def make_model(folder, dtype):
    config = AutoConfig.from_pretrained(folder)
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, 1, 2
    with torch.device(DEVICE):
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype)


def make_tokenizer(size):
    """A word for each id."""
    words = {word: i for i, word in enumerate(SPECIAL)} | {f"t{i}": i for i in range(len(SPECIAL), size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
                                   unk_token="<unk>")


def words(draw, size, count):
    return " ".join(f"t{draw.randrange(len(SPECIAL), size)}" for _ in range(count))


class Clock(TrainerCallback):
    """When each step ended, and the most memory since the warm-up."""

    def __init__(self, warmup):
        self.warmup, self.ends = warmup, []

    def on_step_end(self, *_, **__):
        if CUDA:
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if len(self.ends) == self.warmup and CUDA:
            torch.cuda.reset_peak_memory_stats()

    def seconds(self):
        return [end - begin for begin, end in zip(self.ends[self.warmup - 1:], self.ends[self.warmup:])]


def common(folder, switches, steps):
    return dict(output_dir=folder, report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, seed=0, max_steps=steps,
                learning_rate=1e-6, bf16=CUDA, use_cpu=not CUDA, gradient_checkpointing="checkpointing" in switches)


def timed(trainer, names):
    """Seconds of each call of these methods, in the order of the calls."""
    seconds = {name: [] for name in names}

    def wrap(name, method):
        def call(*arguments, **keywords):
            begin = time.perf_counter()
            result = method(*arguments, **keywords)
            if CUDA:
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begin)
            return result
        return call

    for name in names:
        if hasattr(trainer, name):
            setattr(trainer, name, wrap(name, getattr(trainer, name)))
    return seconds


def peak():
    return {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)} if CUDA else {}


def grpo(folder, switches, work):
    from trl import GRPOConfig, GRPOTrainer
    warmup, steps = 2, 4
    model = make_model(folder, torch.float32 if "fp32" in switches else torch.bfloat16)
    size, draw, clock = model.config.vocab_size, random.Random(1), Clock(warmup)
    count = PROMPTS * GENERATIONS
    options = GRPOConfig(**common(work, switches, warmup + steps), per_device_train_batch_size=count, num_generations=GENERATIONS,
                         max_completion_length=COMPLETION)
    trainer = GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [draw.random() for _ in completions], args=options,
        train_dataset=Dataset.from_list([{"prompt": words(draw, size, PROMPT)} for _ in range(PROMPTS * (warmup + steps))]),
        processing_class=make_tokenizer(size), callbacks=[clock])
    seconds = timed(trainer, ["_generate_single_turn", "_generate_and_score_completions"])
    trainer.train()
    step = statistics.median(clock.seconds())
    rollout, experience = (statistics.median(times[-steps:]) if times else None for times in seconds.values())
    return {"seconds": round(step, 3), "of_generation": rollout and round(rollout, 3),
            "of_scores": experience and rollout and round(experience - rollout, 3),
            "of_training": experience and round(step - experience, 3),
            "rollout_tokens_per_second": rollout and round(count * COMPLETION / rollout)}


def dpo(folder, switches, work):
    from trl import DPOConfig, DPOTrainer
    model = make_model(folder, torch.float32 if "fp32" in switches else torch.bfloat16)
    size, draw, clock = model.config.vocab_size, random.Random(1), Clock(WARMUP)
    half = LENGTH // 2
    rows = [{"prompt": words(draw, size, half)} | {name: " " + words(draw, size, half - 1) for name in ("chosen", "rejected")}
            for _ in range((WARMUP + STEPS) * PAIRS)]
    more = {}
    if "lora" in switches:
        from peft import LoraConfig
        more["peft_config"] = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    elif "cached" not in switches:
        more["ref_model"] = copy.deepcopy(model)
    options = DPOConfig(**common(work, switches, WARMUP + STEPS), per_device_train_batch_size=PAIRS, max_length=LENGTH,
                        precompute_ref_log_probs="cached" in switches, use_liger_kernel="liger" in switches)
    trainer = DPOTrainer(model=model, args=options, train_dataset=Dataset.from_list(rows), processing_class=make_tokenizer(size),
                         callbacks=[clock], **more)
    trainer.train()
    step = statistics.median(clock.seconds())
    return {"seconds": round(step, 4), "pairs_per_second": round(PAIRS / step, 2)}


def main():
    folder = sys.argv[1]
    for case in sys.argv[2:]:
        kind, *switches = case.split("_")
        row = {"case": f"TRL, {case}"}
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(sys.stderr):  # where trainers print their logs
            try:
                if CUDA:
                    torch.cuda.reset_peak_memory_stats()
                row |= {"grpo": grpo, "dpo": dpo}[kind](folder, switches, work) | peak()
            except Exception as error:  # the other cases are of use without it
                row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
        print(json.dumps(row), flush=True)
        if CUDA:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
