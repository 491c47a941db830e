#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Tokenising beside Hugging Face's `tokenizers`, one thread each: one JSON row per family and kind of text.

  benchmarks/text.py [--megabytes 64] [FAMILY...]

The text (English, Chinese and code, a third each) and a tokenizer of 32,000 tokens per family are made on the spot
(text_corpus.py says how). A row has megabytes per second of CPU time of both sides, best of three runs that take turns,
and their ratio; `encode_batch` is the peer, `encode_batch_fast`, which leaves the offsets out, is shown beside it. The
ids must be equal, or it fails. Runs in the environment of `make parity`.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers)  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/parity")]

from text_corpus import KINDS, corpus  # noqa: E402
from tokenizer_parts_test import BYTES, DEEPSEEK, SPECIAL, UNKNOWN, marks, old_marks, plain, splits  # noqa: E402
from tokenizer_test import LLAMA3, O200K, QWEN2, byte_level  # noqa: E402

SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release")) / "bin/skein"
VOCABULARY = 32_000


def trained(texts, pre_tokenizer, normalizer=None, characters=False, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=2, show_progress=False, limit_alphabet=6000, max_token_length=16,
        special_tokens=SPECIAL + ([UNKNOWN] + BYTES if characters else []),
        initial_alphabet=[] if characters else pre_tokenizers.ByteLevel.alphabet()))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] not in BYTES]
    document["model"] |= model
    return document


def of_pieces(texts):
    """As SentencePiece trains: no piece holds a line end, crosses a space or mixes scripts."""
    steps = [pre_tokenizers.Split(Regex(r"[\n\t]"), "removed"), marks("always", True), pre_tokenizers.Split(Regex(
        r"▁?\p{Han}+|▁?[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}|▁+(?!▁)|▁?[^\p{L}\p{N}▁]+"), "isolated")]
    return trained(texts, pre_tokenizers.Sequence(steps), characters=True, unk_token=UNKNOWN, fuse_unk=True,
                   byte_fallback=True)


def with_parts(document, pre_tokenizer=None, normalizer=None, added=()):
    tokenizer = Tokenizer.from_str(json.dumps(document | {"pre_tokenizer": None, "normalizer": None}))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(list(added))
    return tokenizer


def families(texts):
    """Name → what makes the tokenizer."""
    shared = []

    def pieces(**parts):
        if not shared:
            shared.append(of_pieces(texts))
        return with_parts(shared[0], **parts)

    def of_bytes(*arguments, **model):
        return Tokenizer.from_str(json.dumps(trained(texts, *arguments, **model)))

    return {
        "gpt2": lambda: of_bytes(byte_level()),
        "llama3": lambda: of_bytes(byte_level(LLAMA3), ignore_merges=True),
        "qwen2": lambda: of_bytes(byte_level(QWEN2), normalizers.NFC()),
        "o200k": lambda: of_bytes(byte_level(O200K)),
        "llama2": lambda: pieces(normalizer=old_marks()),
        "mistral": lambda: pieces(pre_tokenizer=marks("first", False)),
        "phi3": lambda: pieces(normalizer=old_marks(), added=[
            AddedToken(name, rstrip=True, normalized=False, special=True)
            for name in ["<|user|>", "<|end|>", "<|assistant|>"]]),
        "gemma": lambda: pieces(normalizer=normalizers.Replace(" ", "▁"),
                                pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous")),
        "falcon": lambda: of_bytes(pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(False), *splits("[0-9][0-9][0-9]")])),
        "deepseek": lambda: of_bytes(pre_tokenizers.Sequence([*splits(*DEEPSEEK), plain()])),
    }


def cpu_seconds(work):
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def measure(folder, tokenizer, texts, rounds=3):
    lines = "".join(json.dumps(text) + "\n" for text in texts).encode()
    ours, theirs, quick = [], [], []
    for _ in range(rounds):
        result = subprocess.run([SKEIN, "tokenizer", "bench", folder, "--ids", folder / "ids"], input=lines,
                                stdout=subprocess.PIPE, check=True)
        ours.append(json.loads(result.stdout)["cpu_seconds"])
        seconds, found = cpu_seconds(lambda: tokenizer.encode_batch(texts))
        theirs.append(seconds)
        quick.append(cpu_seconds(lambda: tokenizer.encode_batch_fast(texts))[0])
        ids = array.array("I")
        ids.frombytes((folder / "ids").read_bytes())
        if ids.tolist() != [id for encoding in found for id in encoding.ids]:
            sys.exit("text.py: the ids differ: the figure is of no use")
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return {"megabytes": megabytes, "skein_mb_per_s": megabytes / min(ours), "tokenizers_mb_per_s": megabytes / min(theirs),
            "ratio": min(theirs) / min(ours), "ratio_to_fast": min(quick) / min(ours)}


def sample(documents, size):
    found = []
    for document in documents[::7]:
        found.append(document)
        size -= len(document.encode())
        if size <= 0:
            break
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("family", nargs="*")
    args = parser.parse_args()
    texts = {kind: corpus(kind, int(args.megabytes * 1e6 / len(KINDS))) for kind in KINDS}
    known = families([text for kind in KINDS for text in sample(texts[kind], 3_000_000)])
    for name in args.family or known:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            known[name]().save(str(folder / "tokenizer.json"))
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            for kind in KINDS:
                row = measure(folder, tokenizer, texts[kind])
                print(json.dumps({"case": "tokenize", "family": name, "text": kind}
                                 | {key: round(value, 2) for key, value in row.items()}), flush=True)


if __name__ == "__main__":
    main()
