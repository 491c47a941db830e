#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes the instructions of `make demo-sft`: sums, string tasks and look-ups, asked in words.

  tools/make_instructions.py OUT [--questions 200]

Writes OUT/train.jsonl and OUT/validation.jsonl ({"messages": [user, assistant]} per line), and
OUT/questions.jsonl, what the user says in validation.jsonl. The same bytes everywhere. Which file a row
goes to follows from its question, and no question is asked twice. What a question is about (7 + 5,
the letters of "stone") may well be in train.jsonl, in other words. validation.jsonl comes last.
"""
import argparse
import json
import sys
import zlib
from pathlib import Path

from make_corpus import EN_NAMES, EN_THINGS, WORDS, ZH_NAMES, ZH_THINGS, Draw

VALIDATION_SHARE = 8  # one question in so many
LOOKUPS = 200         # of each language


def sums():
    """Answered in the words that the model knows from its first training."""
    for a in range(13):
        for b in range(13):
            for question in (f"What is {a} + {b}?", f"Calculate {a} + {b}.", f"{a} + {b} = ?", f"{a} + {b} 等于几？"):
                yield question, f"{a} + {b} = {a + b}"
            if a >= b:
                for question in (f"What is {a} - {b}?", f"Calculate {a} - {b}.", f"{a} - {b} = ?", f"{a} - {b} 等于几？"):
                    yield question, f"{a} - {b} = {a - b}"


def strings():
    asked = {"reverse": ["Reverse: {}", "Write this backwards: {}", "Reverse these letters: {}"],
             "copy": ["Copy: {}", "Repeat after me: {}", "Copy these letters: {}"],
             "sort": ["Sort: {}", "Put this in order: {}", "Sort these letters: {}"]}
    for word in WORDS:
        answers = {"reverse": word[::-1], "copy": word, "sort": "".join(sorted(word))}
        for task, questions in asked.items():
            for question in questions:
                yield question.format(" ".join(word)), " ".join(answers[task])


def lookups(draw):
    """Who of two has what? The answer stands in the question."""
    for _ in range(LOOKUPS):
        first, second = two(draw, EN_NAMES)
        one, other = two(draw, EN_THINGS)
        name, thing = draw.one([(first, one), (second, other)])
        yield f"{first} has a {one}. {second} has a {other}. What does {name} have?", f"a {thing}"
    for _ in range(LOOKUPS):
        first, second = two(draw, ZH_NAMES)
        one, other = two(draw, ZH_THINGS)
        name, thing = draw.one([(first, one), (second, other)])
        yield f"{first}有{one}。{second}有{other}。{name}有什么？", thing


def two(draw, choices):
    first = draw.one(choices)
    return first, draw.one([other for other in choices if other != first])


def shuffled(rows, draw):
    for last in range(len(rows) - 1, 0, -1):
        other = draw.below(last + 1)
        rows[last], rows[other] = rows[other], rows[last]
    return rows


def row(*contents):
    messages = [{"role": role, "content": content} for role, content in zip(("user", "assistant"), contents)]
    return json.dumps({"messages": messages}, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--questions", type=int, default=200, help="rows of validation.jsonl at most")
    options = parser.parse_args()
    draw = Draw(20240301)
    answers = dict([*sums(), *strings(), *lookups(draw)])
    files = {"train": [], "questions": [], "validation": []}
    for question, answer in shuffled(list(answers.items()), draw):
        if zlib.crc32(question.encode()) % VALIDATION_SHARE != 0:
            files["train"].append(row(question, answer))
        elif len(files["validation"]) < options.questions:
            files["questions"].append(row(question))
            files["validation"].append(row(question, answer))
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
