#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Rows of conversations made ready for training (read, printed by the chat template, encoded, masked, packed), beside
`datasets.map` with transformers' apply_chat_template and TRL's way of packing: one JSON row for one thread, one for all cores.

  benchmarks/rows.py [--rows 4000]

The rows are conversations of one to three turns out of the text of text_corpus.py, of 256 to 2047 tokens, and go into
packs of 4096. skein is `skein data prepare`, from exec to exit: with the start of the program, the file that it leaves and
the label audit. Of the peer, imports are not counted. Both use the same tokenizer and template, from files; rows, tokens
and trained tokens must be equal, or it fails. Best of three runs that take turns; `ratio` is of CPU time with one thread,
of time on the clock with all cores. Runs in the environment of `make parity`.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from text import SKEIN, families, sample  # noqa: E402
from text_corpus import corpus  # noqa: E402

SHORTEST, LONGEST, CUTOFF_LEN = 256, 2047, 4096
TURN_TOKENS = 5  # <|im_start|>, role, line end, <|im_end|>, line end


def model(folder, texts):
    folder.mkdir()
    tokenizer = families(texts)["qwen2"]()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}))
    template = subprocess.run([SKEIN, "template", "show", "chatml"], stdout=subprocess.PIPE, check=True).stdout
    (folder / "chat_template.jinja").write_bytes(template.removesuffix(b"\n"))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": tokenizer.get_vocab_size(), "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}))
    return tokenizer


def pieces(tokenizer, texts):
    """piece(n): the next n tokens of the texts, as text."""
    def tokens():
        while True:
            for text in texts:
                for begin, end in tokenizer.encode(text, add_special_tokens=False).offsets:
                    yield text[begin:end]
                yield "\n"
    stream = tokens()
    return lambda size: "".join(next(stream) for _ in range(size))


def conversations(piece, count):
    rng = random.Random(0)
    for _ in range(count):
        turns = rng.randint(1, 3)
        # Pieces behind each other become a few tokens more.
        room = rng.randint(SHORTEST + 8, LONGEST - 128) - 2 * turns * TURN_TOKENS
        messages = []
        for turn in range(turns):
            asked = room // turns // 4
            messages += [{"role": "user", "content": piece(asked)},
                         {"role": "assistant", "content": piece(room // turns - asked)}]
        yield {"messages": messages}


def ours(work, threads):
    with tempfile.TemporaryDirectory(dir=work) as cache:
        settings = {"stage": "sft", "model_name_or_path": work / "model", "train_from_scratch": "true",
                    "train_file": work / "rows.jsonl", "cutoff_len": CUTOFF_LEN, "packing": "true",
                    "data_cache_dir": cache, "preprocessing_num_workers": threads, "output_dir": Path(cache) / "run"}
        begin = time.time()
        process = subprocess.Popen([SKEIN, "data", "prepare", *(f"{k}={v}" for k, v in settings.items())],
                                   stdout=subprocess.PIPE, text=True)
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.time() - begin
    if status != 0:
        sys.exit("rows.py: skein data prepare failed")
    rows, tokens, trained, packs, fill = (float(number.replace(",", "")) for number in re.search(
        r"of ([\d,]+) rows: ([\d,]+) tokens, ([\d,]+) trained on.*?([\d,]+) packs of \d+ tokens, ([\d.]+) % full",
        text, re.DOTALL).groups())
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "rows": rows, "tokens": tokens,
            "trained": trained, "packs": packs, "fill": round(fill / 100, 4)}


def theirs(work, processes):
    with tempfile.TemporaryDirectory(dir=work) as cache:
        result = subprocess.run([sys.executable, ROOT / "benchmarks/peers/prepare_rows.py", work / "model",
                                 work / "rows.jsonl", cache, str(CUTOFF_LEN), str(processes)], stdout=subprocess.PIPE,
                                check=True, env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": cache})
    return json.loads(result.stdout)


def measure(work, threads, rounds=3):
    time_of = "cpu_seconds" if threads == 1 else "seconds"
    both = [(ours(work, threads), theirs(work, threads)) for _ in range(rounds)]
    mine, other = both[0]
    for name in ("rows", "tokens", "trained"):
        if mine[name] != other[name]:
            sys.exit(f"rows.py: {name} differ, {mine[name]} and {other[name]}: the figure is of no use")
    seconds, their_seconds = (min(pair[i][time_of] for pair in both) for i in (0, 1))
    return {"case": "rows", "threads": threads, "measured": time_of, "rows": other["rows"], "tokens": other["tokens"],
            "shortest": other["shortest"], "longest": other["longest"], "skein_rows_per_s": round(mine["rows"] / seconds),
            "peer_rows_per_s": round(mine["rows"] / their_seconds), "ratio": round(their_seconds / seconds, 2),
            "skein_fill": mine["fill"], "peer_fill": round(other["fill"], 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    args = parser.parse_args()
    texts = corpus("english", 6_000_000)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tokenizer = model(work / "model", sample(texts, 3_000_000))
        with open(work / "rows.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in conversations(pieces(tokenizer, texts), args.rows))
        for threads in sorted({1, os.cpu_count()}):
            print(json.dumps(measure(work, threads)), flush=True)


if __name__ == "__main__":
    main()
