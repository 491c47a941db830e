# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A folder with answers that people have judged, for tests of stages rm, dpo and kto."""
import random

from harness import ChatWorkspace, run_skein

SHORT = dict(max_steps=4, global_batch_size=4, lr_scheduler_type="constant", learning_rate=2e-3, dtype="float64")
LORA = ("finetuning_type=lora", "lora_rank=4", "train_from_scratch=false", "model_name_or_path=base")


def turn(role, content):
    return {"role": role, "content": content}


class Judged(ChatWorkspace):
    """Pairs in pairs.jsonl, answers judged alone in judged.jsonl; c.yaml trains on those of the stage. `base` has weights."""

    def __init__(self, stage, rows=13, **keys):
        file = "judged.jsonl" if stage == "kto" else "pairs.jsonl"
        super().__init__(block_size=64, **SHORT | keys | {"stage": stage, "train_file": file})
        rng = random.Random(5)
        pairs, judged = [], []
        for _ in range(rows):
            prompt = [turn("user", "".join(rng.choices("abcd ", k=rng.randint(1, 9))))]
            good, bad = ([turn("assistant", "".join(rng.choices(letters, k=rng.randint(2, 12))))]
                         for letters in ("xy", "zw"))
            pairs.append({"prompt": prompt, "chosen": good, "rejected": bad})
            judged.append({"prompt": prompt, "completion": good, "label": True})
            if rng.random() < 0.7:
                judged.append({"prompt": prompt, "completion": bad, "label": False})
        self.write_rows(pairs, "pairs.jsonl")
        self.write_rows(judged, "judged.jsonl")
        run_skein(["train", "c.yaml", "stage=sft", "train_file=chat.jsonl", "output_dir=base", "max_steps=1",
                   "report_to=none", "dtype=float32", "metric_for_best_model=loss"], self.folder)

    def logged(self, output):
        return [record for record in self.records(output) if "loss" in record]


def numbers_of(record):
    """What a step's record says of its samples."""
    left_out = ("step", "epoch", "tokens_per_second", "peak_memory_bytes", "num_input_tokens_seen", "learning_rate")
    return {name: value for name, value in record.items()
            if name not in left_out and not name.startswith("seconds_")}
