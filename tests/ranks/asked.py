# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""A folder with questions that a model is to answer, for tests of stages grpo, rloo and ppo."""
import json
import random

from harness import ChatWorkspace, run_skein
from judged import numbers_of

# Groups of four, two mini-batches in which no group is cut, two iterations; a reward that a chance text has now and then.
STEPS = dict(max_steps=3, global_batch_size=8, num_mini_batches=2, num_iterations=2, max_prompt_length=40,
             max_completion_length=8, num_generations=4, lr_scheduler_type="constant", learning_rate=2e-3,
             dtype="float64", reward_funcs=["regex:[a-m]", "length:1,6,2"], report_to="none")
FULL = ("train_from_scratch=false", "model_name_or_path=base")
LORA = ("finetuning_type=lora", "lora_rank=4", *FULL)
STAGES = ("grpo", "rloo", "ppo")

# Answers every question, late where FOLDER/slow is; FOLDER/batch-N says that rank 0 has been asked for that batch.
PROGRAM = """
import json, os, pathlib, sys, time
print(json.dumps({"protocol": 1, "names": ["letters"]}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["index"] == 0 and os.environ.get("RANK", "0") == "0":
        pathlib.Path(f"batch-{asked['batch']}").touch()
    if asked["index"] == 0 and pathlib.Path("slow").exists():
        time.sleep(0.2)
    text = asked["completion"]
    print(json.dumps({"id": asked["id"], "reward": sum(letter.isalpha() for letter in text) / 8}), flush=True)
"""


# Replies as often as it may, before it counts letters of all that was said.
REPLIES = """
import json, sys
print(json.dumps({"protocol": 1, "names": ["letters"]}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["turn"] + 1 < asked["max_turns"]:
        said = {"messages": [{"role": "user", "content": f"turn {asked['turn']}"}]}
    else:
        said = {"reward": sum(letter in "abcdefghijklm" for letter in asked["completion"]) / 8}
    print(json.dumps({"id": asked["id"], **said}), flush=True)
"""


class Asked(ChatWorkspace):
    """Questions in questions.jsonl, which c.yaml trains on; `base` has weights, `judge` scores texts, rewards.py is a program."""

    def __init__(self, stage, rows=13, **keys):
        keys = STEPS | keys | {"stage": stage, "train_file": "questions.jsonl", "train_from_scratch": False,
                               "model_name_or_path": "base"}
        super().__init__(num_rows=24, **keys)
        rng = random.Random(5)
        self.write_rows([{"messages": [{"role": "user", "content": "".join(rng.choices("abcd ", k=rng.randint(1, 9)))}],
                          "answer": str(row)} for row in range(rows)], "questions.jsonl")
        del self.keys["block_size"]
        self.write_recipe(self.keys)
        self.write_recipe({name: self.keys[name] for name in ("template", "device", "save_steps", "report_to")}, "begin.yaml")
        self.begin("base", "stage=sft", "train_file=chat.jsonl", "max_steps=20", "learning_rate=1e-2")
        (self / "rewards.py").write_text(PROGRAM)
        (self / "replies.py").write_text(REPLIES)

    def begin(self, output, *words, block_size=128):
        run_skein(["train", "begin.yaml", "model_name_or_path=model", "train_from_scratch=true", f"block_size={block_size}",
                   "dtype=float32", f"output_dir={output}", *words], self.folder)

    def make_judge(self, output="judge"):
        """Learns for a few steps that letters are better than others."""
        rng = random.Random(6)
        answer = lambda letters: [{"role": "assistant", "content": "".join(rng.choices(letters, k=6))}]
        pairs = [{"prompt": [{"role": "user", "content": "ab"}], "chosen": answer("xy"), "rejected": answer("12")}
                 for _ in range(16)]
        self.write_rows(pairs, "pairs.jsonl")
        self.begin(output, "stage=rm", "train_file=pairs.jsonl", "max_steps=8", "learning_rate=1e-2")

    def logged(self, output):
        return [record for record in self.records(output) if "reward" in record]

    def said(self, output):
        return [json.loads(line) for line in (self / output / "completions.jsonl").read_text().splitlines()]


def learned(record):
    """What a step's record says of its completions, and not of how long they took."""
    return {name: value for name, value in numbers_of(record).items() if not name.startswith("rollout/")}
