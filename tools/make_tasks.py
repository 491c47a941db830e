#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes the rows of `make demo-less`: ten tasks in equal parts, and examples of one of them.

  tools/make_tasks.py OUT [--rows 120] [--seed 1] [--task sum]

Writes OUT/train.jsonl (rows of each task, mixed), OUT/dev.jsonl (ten examples of the one task) and
OUT/heldout.jsonl (60 more of it), {"task", "prompt", "completion"} per line; no row is in two files. The same
bytes everywhere for one seed.
"""
import argparse
import json
import random
from pathlib import Path

VOWELS = "aeiou"
NAMES = ("Anna", "Tom", "Mia", "Ben")


def letters(rng):
    return [rng.choice("abcdefghijklmnoprstuvw") for _ in range(rng.randint(4, 7))]


def spelled(word):
    return " ".join(word)


def of_letters(ask, answer):
    def make(rng):
        word = letters(rng)
        return ask.format(spelled(word)), answer(word)
    return make


def of_numbers(ask, answer):
    def make(rng):
        a, b = rng.randint(2, 60), rng.randint(2, 60)
        return ask.format(a, b), answer(a, b)
    return make


def who_has(rng):
    first, second = rng.sample(NAMES, 2)
    one, other = rng.sample(["key", "boat", "hat", "pen", "cup", "book", "ball"], 2)
    name, thing = rng.choice([(first, one), (second, other)])
    return f"{first} has a {one}. {second} has a {other}. What does {name} have?", f"a {thing}"


TASKS = {
    "reverse": of_letters("Reverse: {}", lambda word: spelled(word[::-1])),
    "copy": of_letters("Copy: {}", spelled),
    "sort": of_letters("Sort: {}", lambda word: spelled(sorted(word))),
    "first": of_letters("First letter of {}?", lambda word: word[0]),
    "length": of_letters("How many letters: {}?", lambda word: str(len(word))),
    "vowels": of_letters("Vowels of {}?", lambda word: spelled([c for c in word if c in VOWELS]) or "none"),
    "sum": of_numbers("What is {} + {}?", lambda a, b: f"{a} + {b} = {a + b}"),
    "larger": of_numbers("Larger of {} and {}?", lambda a, b: str(max(a, b))),
    "double": of_numbers("Twice {}, not {}?", lambda a, b: str(2 * a)),
    "look": who_has,
}


def rows_of(task, count, rng, used):
    rows = []
    while len(rows) < count:
        prompt, completion = TASKS[task](rng)
        if prompt in used:
            continue
        used.add(prompt)
        rows.append({"task": task, "prompt": f"{prompt}\n", "completion": completion})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=120, help="of each task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--task", default="sum", choices=TASKS)
    options = parser.parse_args()
    rng, used = random.Random(options.seed), set()
    few = max(1, min(60, options.rows))
    files = {"dev": rows_of(options.task, min(10, few), rng, used), "heldout": rows_of(options.task, few, rng, used)}
    files["train"] = [row for task in TASKS
                      for row in rows_of(task, options.rows if task != "look" else min(options.rows, 80), rng, used)]
    rng.shuffle(files["train"])
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (options.out / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
