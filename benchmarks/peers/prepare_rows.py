# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same preparation in Python, as TRL does it: `datasets` reads the rows and maps transformers' chat template over them,
then puts them into packs, best fit first, a thousand rows at a time.

  prepare_rows.py MODEL ROWS CACHE CUTOFF_LEN PROCESSES

Prints one JSON object. Imports and the tokenizer's loading are not counted.
"""
import bisect
import json
import resource
import sys
import time

import datasets
import pyarrow as pa
import transformers

model, rows, cache, cutoff_len, processes = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
datasets.disable_progress_bars()
tokenizer = transformers.AutoTokenizer.from_pretrained(model)


def encode(row):
    found = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True,
                                          return_assistant_tokens_mask=True)
    return {"input_ids": found["input_ids"], "trained": found["assistant_masks"]}


def pack(table):
    lengths = table["input_ids"].combine_chunks().value_lengths().to_pylist()
    rooms, packs = [], []  # (what is left, pack), ascending
    for row in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        place = bisect.bisect_left(rooms, (lengths[row], -1))
        room, found = rooms.pop(place) if place < len(rooms) else (cutoff_len, len(packs))
        if found == len(packs):
            packs.append([])
        packs[found].append(row)
        bisect.insort(rooms, (room - lengths[row], found))
    order = pa.array([row for rows in packs for row in rows])
    ends = [0]
    for one in packs:
        ends.append(ends[-1] + sum(lengths[row] for row in one))
    columns = {name: pa.ListArray.from_arrays(pa.array(ends, pa.int32()),
                                              table[name].combine_chunks().take(order).flatten())
               for name in ("input_ids", "trained")}
    columns["lengths"] = pa.array([[lengths[row] for row in one] for one in packs])
    return pa.table(columns)


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


begin, cpu = time.time(), cpu_seconds()
several = {"num_proc": processes} if processes > 1 else {}
encoded = datasets.load_dataset("json", data_files=rows, split="train", cache_dir=cache).map(
    encode, remove_columns=["messages"], **several)
packed = encoded.with_format("arrow").map(pack, batched=True, remove_columns=encoded.column_names, **several)
seconds, cpu = time.time() - begin, cpu_seconds() - cpu

lengths = [length for one in packed["lengths"] for length in one.as_py()]
tokens = sum(lengths)
print(json.dumps({
    "seconds": seconds, "cpu_seconds": cpu, "rows": len(lengths), "tokens": tokens,
    "trained": sum(sum(one) for one in encoded["trained"]), "shortest": min(lengths), "longest": max(lengths),
    "packs": len(packed), "fill": tokens / (len(packed) * cutoff_len)}))
