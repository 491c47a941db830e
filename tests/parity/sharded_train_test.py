# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Ten steps of `skein train` on two ranks under ddp and zero1 to zero3, against torch's DDP and FSDP2 and DeepSpeed's ZeRO
1 and 2 on two ranks: each with the other's weights, data, AdamW, schedule and clipping.

DeepSpeed's engine runs here on CPUs, over Gloo, with torch's AdamW inside (its own is compiled at first use)."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from conftest import llama_config, save_random_model, write_tokens
from train_test import BLOCK, SETTINGS, assert_same_records, assert_same_tensors

RANKS = 2
NUM_BLOCKS = 8
# Theirs, and ours that divides the same.
WAYS = {"ddp": "ddp", "fsdp2": "zero3", "deepspeed1": "zero1", "deepspeed2": "zero2"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The model's folder and a file of tokens."""
    folder = tmp_path_factory.mktemp("inputs")
    write_tokens(folder / "tokens.bin", NUM_BLOCKS * BLOCK, seed=1)
    return save_random_model(llama_config(), folder / "model", 5), folder / "tokens.bin"


@pytest.fixture(scope="module")
def references(inputs, tmp_path_factory):
    """By way: the records of all steps, and the last weights. One start for all, which is most of the time."""
    out = tmp_path_factory.mktemp("torch")
    folder = Path(__file__).parent
    ended = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
                            folder / "torch_ranks.py", *inputs, out, *WAYS],
                           env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found = {}
    for way in WAYS:
        numbers = json.loads((out / f"{way}.json").read_text())
        records = [dict(zip(numbers, values)) for values in zip(*numbers.values(), strict=True)]
        assert len(records) == SETTINGS["max_steps"]
        assert records[-1]["loss"] < 0.9 * records[0]["loss"]  # it learns
        found[way] = records, load_file(out / f"{way}.safetensors")
    return found


@pytest.mark.parametrize("way", WAYS)
def test_ten_steps(way, inputs, references, train, tmp_path):
    model, tokens = inputs
    found = train("out", RANKS, model_name_or_path=model, train_file=tokens, block_size=BLOCK, lr_scheduler_type="linear",
                  global_batch_size=NUM_BLOCKS, distributed_strategy=WAYS[way], **SETTINGS)
    records, weights = references[way]
    assert all(record["grad_norm"] > SETTINGS["max_grad_norm"] for record in records)  # every step clips
    assert_same_records(found, records, 1e-5)
    assert_same_tensors(load_file(tmp_path / "out/model.safetensors"), weights, "", 1e-4)
