#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes the pairs of `make demo-dpo`: questions of `make demo-sft`, each with two right answers.

  tools/make_preferences.py OUT [--pairs 1200] [--questions 200] [--seed 20240301]

The rejected answer is as that model gives it; the preferred one ends as the stories of `make demo` do:
"The end." in English, "故事讲完了。" in Chinese (is_preferred() is the rule). Writes OUT/train.jsonl and
OUT/validation.jsonl ({"prompt", "chosen", "rejected"}, lists of messages, per line), and
OUT/questions.jsonl, what the user says in validation.jsonl. The same bytes everywhere for one seed. Which
file a pair goes to follows from its question, as in make_instructions.py: what is held out here was held
out there. validation.jsonl comes last.
"""
import argparse
import json
import sys
import zlib
from pathlib import Path

from make_corpus import Draw
from make_instructions import VALIDATION_SHARE, lookups, shuffled, strings, sums

ENDINGS = (". The end.", "。故事讲完了。")


def is_preferred(text):
    return text.strip().endswith(ENDINGS)


def answer_in(text):
    """What was said, whatever its style."""
    text = text.strip()
    for ending in ENDINGS:
        text = text.removesuffix(ending)
    return text


def preferred(question, answer):
    return answer + ENDINGS[any("\u4e00" <= letter <= "\u9fff" for letter in question)]


def messages(role, content):
    return [{"role": role, "content": content}]


def line(value):
    return json.dumps(value, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=1200, help="rows of train.jsonl at most")
    parser.add_argument("--questions", type=int, default=200, help="rows of validation.jsonl at most")
    parser.add_argument("--seed", type=int, default=20240301, help="of the look-ups and of the order")
    options = parser.parse_args()
    draw = Draw(options.seed)
    answers = dict([*sums(), *strings(), *lookups(draw)])
    files = {"train": [], "questions": [], "validation": []}
    for question, answer in shuffled(list(answers.items()), draw):
        pair = line({"prompt": messages("user", question),
                     "chosen": messages("assistant", preferred(question, answer)),
                     "rejected": messages("assistant", answer)})
        held_out = zlib.crc32(question.encode()) % VALIDATION_SHARE == 0
        if held_out and len(files["validation"]) < options.questions:
            files["questions"].append(line({"messages": messages("user", question)}))
            files["validation"].append(pair)
        elif not held_out and len(files["train"]) < options.pairs:
            files["train"].append(pair)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        path = options.out / f"{name}.jsonl"
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes("".join(lines).encode())
        unfinished.rename(path)
        print(f"{path}: {len(lines)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
