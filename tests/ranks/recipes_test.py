# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Every file of recipes/ takes a step, with a tiny model and tiny data; and the README's commands for fine-tuning, word
for word."""
import json
import re
import subprocess
import unittest

from harness import ENVIRONMENT, ROOT, SKEIN, ChatWorkspace, run_skein

RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
# What a recipe leaves to its reader, and what would be too large here.
PAIRS = ["train_file=pairs.jsonl", "cutoff_len=128"]
QUESTIONS = ["train_file=questions.jsonl", "max_prompt_length=64", "max_completion_length=8"]
WORDS = {"sft": ["train_file=chat.jsonl", "cutoff_len=128"], "pt": ["train_file=text.txt", "block_size=32"],
         "rm": PAIRS, "dpo": PAIRS, "kto": ["train_file=judged.jsonl", "cutoff_len=128"],
         "grpo": [*QUESTIONS, "num_generations=2"], "rloo": [*QUESTIONS, "num_generations=2", "reward_model=judge"],
         "ppo": [*QUESTIONS, "reward_model=judge", "critic_warmup=0"]}
EVALUATED = {"sft": "few.jsonl", "pt": "text.txt", "rm": "pairs.jsonl", "dpo": "pairs.jsonl", "kto": "judged.jsonl",
             "grpo": "questions.jsonl", "ppo": "questions.jsonl"}
BATCH = ["global_batch_size=4", "per_device_train_batch_size=2", "gradient_accumulation_steps=2"]


def stage_of(recipe):
    found = re.search(r"^stage: (\w+)", recipe.read_text(), re.MULTILINE)
    return found[1] if found else "pt"


def make_model(work, folder):
    """With weights, a tokenizer and a chat template."""
    work.run("max_steps=1", f"output_dir={folder}", "report_to=none")


def write_judged(work):
    """Pairs of answers, answers judged alone, and questions without one."""
    pairs, judged, questions = [], [], []
    for number in range(12):
        prompt = [{"role": "user", "content": f"What is {number} + 1?"}]
        good, bad = ([{"role": "assistant", "content": text}] for text in (f"{number + 1}", f"no {number}"))
        pairs.append({"prompt": prompt, "chosen": good, "rejected": bad})
        judged += [{"prompt": prompt, "completion": good, "label": True},
                   {"prompt": prompt, "completion": bad, "label": False}]
        questions.append({"messages": prompt, "answer": number + 1})
    for name, rows in (("pairs.jsonl", pairs), ("judged.jsonl", judged), ("questions.jsonl", questions)):
        (work / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


class Recipes(unittest.TestCase):
    def test_a_step_of_each(self):
        self.assertGreater(len(RECIPES), 5)
        with ChatWorkspace() as work:
            make_model(work, "base")
            work.write_chat(4, "few.jsonl", seed=2)
            write_judged(work)
            tiny = ["model_name_or_path=base", "device=cpu", "max_steps=1", *BATCH]
            run_skein(["train", ROOT / "recipes/rm.yaml", *PAIRS, *tiny, "output_dir=judge"], work.folder)
            for recipe in RECIPES:
                stage, out = stage_of(recipe), recipe.stem
                words = [*WORDS[stage], *tiny, f"output_dir={out}"]
                if "eval_file:" in recipe.read_text():
                    words.append("eval_file=" + EVALUATED[stage])
                with self.subTest(recipe.name):
                    run_skein(["train", recipe, *words], work.folder)
                    self.assertEqual([r["step"] for r in work.records(out) if "loss" in r], [1])

    def test_those_without_a_model_of_their_own_are_checked(self):
        """What a reader fills in is all that they lack."""
        for recipe in RECIPES:
            if "model_name_or_path:" not in recipe.read_text():
                with self.subTest(recipe.name):
                    judge = ["reward_model=RM"] if "reward_model=RM" in recipe.read_text() else []
                    ended = run_skein(["config", "check", recipe, *judge], ROOT)
                    self.assertNotIn("warning", ended.stderr)


class Readme(unittest.TestCase):
    def test_fine_tuning(self):
        """With a model and rows under the names that the section uses."""
        section = (ROOT / "README.md").read_text().partition("\n## Fine-tune\n")[2].partition("\n## ")[0]
        block = re.search(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
        self.assertEqual(re.findall(r"^skein (\w+)", block, re.MULTILINE), ["data", "train", "chat", "merge"])
        with ChatWorkspace() as work:
            make_model(work, "models/llama")
            (work / "recipes").symlink_to(ROOT / "recipes")
            # As a fresh clone has it: nowhere on PATH.
            (work / "build/release").mkdir(parents=True)
            (work / "build/release/bin").symlink_to(SKEIN.parent)
            ended = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=work.folder, env=ENVIRONMENT,
                                   input="1 + 2\n", capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            for file in ("runs/lora/adapter_config.json", "models/mine/model.safetensors",
                         "models/mine/chat_template.jinja"):
                self.assertTrue((work / file).exists(), file)


if __name__ == "__main__":
    unittest.main()
