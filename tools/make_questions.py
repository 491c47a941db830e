#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes the questions of `make demo-rl`: what the model of `make demo-sft` can do, asked in words that it has not been taught.

  tools/make_questions.py OUT [--questions 200] [--pairs 2500]

Writes OUT/train.jsonl and OUT/validation.jsonl ({"messages": [user], "answer": …} per line), and of the same questions
OUT/train_pairs.jsonl and OUT/validation_pairs.jsonl ({"prompt", "chosen", "rejected"}), in which the rejected answer does something
else with the same letters, reverses them wrongly, ends too early, or answers another question. The same bytes everywhere. Which file a question goes to follows from
the question; what it is about may well be in the other one, in other words. validation.jsonl comes last.
"""
import argparse
import json
import sys
import zlib
from pathlib import Path

from make_corpus import WORDS, Draw
from make_instructions import VALIDATION_SHARE, shuffled

# The task is the same behind all of them; the model has learnt "Reverse: …", "Copy: …" and "Sort: …".
WORDINGS = ["Backwards: {}", "From the last to the first: {}", "Turn around: {}", "Read from the end: {}", "Mirror: {}", "Last letter first: {}"]


def questions():
    """Question -> the letters that it is about."""
    return {wording.format(" ".join(word)): word for wording in WORDINGS for word in WORDS}


def spelled(word):
    return " ".join(word)


def answer_to(word):
    return spelled(word[::-1])


def wrong_answers(word, draw):
    """Of one of the other tasks, or with two letters exchanged, one left out, one twice, some of them others; cut short, down to a
    single letter; the answer to another question, or half of it. What a reward model has never seen it may find better than any
    wrong answer that it knows, and PPO finds out."""
    right = list(word[::-1])
    last = len(right) - 1
    one = draw.below(last)
    exchanged = right[:one] + [right[one + 1], right[one]] + right[one + 2:]
    other = list(right)
    other[draw.below(last + 1)] = draw.one(right)
    others = list(other)
    others[draw.below(last + 1)] = draw.one(right)
    another = draw.one([each for each in WORDS if each != word])[::-1]
    half = 1 + draw.below(last)
    all_of_them = [word, "".join(sorted(word)), "".join(exchanged), "".join(right[:one] + right[one + 1:]),
                   "".join(right[:one] + [right[one]] + right[one:]), "".join(other), "".join(others),
                   "".join(right[:1]), "".join(right[:half]), another, "".join(right[:half]) + another[half:],
                   another[:half] + "".join(right[half:])]
    return [spelled(wrong) for wrong in all_of_them if wrong != word[::-1]]


def messages(role, content):
    return [{"role": role, "content": content}]


def line(value):
    return json.dumps(value, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--questions", type=int, default=200, help="rows of validation.jsonl at most")
    parser.add_argument("--pairs", type=int, default=2500, help="rows of train_pairs.jsonl at most")
    options = parser.parse_args()
    draw = Draw(20240315)
    names = ("train", "train_pairs", "validation_pairs", "validation")
    files = {name: [] for name in names}
    for question, word in shuffled(list(questions().items()), draw):
        asked, right = messages("user", question), answer_to(word)
        pairs = [line({"prompt": asked, "chosen": messages("assistant", right), "rejected": messages("assistant", wrong)})
                 for wrong in wrong_answers(word, draw)]
        name = "validation" if zlib.crc32(question.encode()) % VALIDATION_SHARE == 0 else "train"
        if name == "validation" and len(files[name]) == options.questions:
            continue
        files[name].append(line({"messages": asked, "answer": right}))
        files[f"{name}_pairs"] += pairs
    files["train_pairs"] = shuffled(files["train_pairs"], draw)[:options.pairs]
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = options.out / f"{name}.jsonl"
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes("".join(files[name]).encode())
        unfinished.rename(path)
        print(f"{path}: {len(files[name])} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
