#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Text to measure with, made on the spot: English, Chinese and code, as lists of documents.

  english   the documentation strings of the Python packages of this interpreter, behind each other to about 4 kB
  code      the Python files of the same packages, cut to 16 kB
  chinese   no such text lies on a machine: 40,000 words of 1 to 4 of 4,000 ideographs, drawn with the frequencies of
            Zipf's law, in sentences with punctuation, digits and a few English words, by a fixed seed

English and code are the machine's own text, no file twice; what is missing is filled by reading it again in other cuts.
"""
import ast
import itertools
import random
import sysconfig
from pathlib import Path

KINDS = ["english", "chinese", "code"]


def sources():
    """The text of Python files, in an order that depends on their names alone."""
    folders = [sysconfig.get_paths()[name] for name in ("stdlib", "purelib")]
    paths = sorted({path for folder in folders for path in Path(folder).rglob("*.py")})
    random.Random(0).shuffle(paths)
    seen = set()
    for path in paths:
        try:
            text = path.read_text()
        except (UnicodeDecodeError, OSError):
            continue
        if len(text) > 200 and text not in seen:
            seen.add(text)
            yield text


def docstrings(texts):
    seen = set()
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found = ast.get_docstring(node)
                if found and len(found) > 80 and found not in seen:
                    seen.add(found)
                    yield found


def joined(parts, least):
    """Parts behind each other until they have so many characters."""
    document, size = [], 0
    for part in parts:
        document.append(part)
        size += len(part)
        if size >= least:
            yield "\n\n".join(document)
            document, size = [], 0


def pieces(texts, most):
    for text in texts:
        for begin in range(0, len(text), most):
            yield text[begin:begin + most]


def zipf(rng, items, exponent=1.0):
    """A drawing of items by Zipf's law, in blocks since that is quick."""
    weights = list(itertools.accumulate((i + 2.7) ** -exponent for i in range(len(items))))
    while True:
        yield from rng.choices(items, cum_weights=weights, k=10_000)


def chinese():
    rng = random.Random(1)
    hanzi = zipf(rng, rng.sample([chr(c) for c in range(0x4E00, 0x9FA6)], 4000), 0.9)
    words, seen = [], set()
    while len(words) < 40_000:
        word = "".join(itertools.islice(hanzi, rng.choices([1, 2, 3, 4], [1, 6, 2, 1])[0]))
        if word not in seen:
            seen.add(word)
            words.append(word)
    words = zipf(rng, words)
    others = ["Python", "GPU", "2024", "3.5", "100", "AI", "model", "data"]
    while True:
        document = []
        for _ in range(rng.randint(20, 60)):
            for clause in range(rng.randint(1, 4)):
                document += ["，"] * (clause > 0) + list(itertools.islice(words, rng.randint(3, 9)))
                if rng.random() < 0.08:
                    document.append(rng.choice(others))
            document.append(rng.choices(["。", "？", "！", "。\n", "；"], [8, 1, 1, 3, 1])[0])
        yield "".join(document)


def taken(documents, size):
    found, have = [], 0
    for document in documents:
        found.append(document)
        have += len(document.encode())
        if have >= size:
            return found
    return None


def corpus(kind, size):
    """Documents of at least `size` bytes together."""
    make = {"english": lambda cut: joined(docstrings(sources()), cut), "chinese": lambda cut: chinese(),
            "code": lambda cut: pieces(sources(), 4 * cut)}[kind]
    documents = itertools.chain.from_iterable(make(cut) for cut in itertools.count(4000, 777))
    return taken(documents, size)
