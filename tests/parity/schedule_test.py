# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The learning rate of every step, against transformers' schedules and its rule for warm-up."""
from types import SimpleNamespace

import pytest
import torch
import transformers

from conftest import write_tokens

STEPS = 12
PEAK = 7e-4

# What the configuration says, and transformers' warmup_steps for it.
WARMUPS = {
    "none": ({}, 0),
    "steps": ({"warmup_steps": 5}, 5),
    "one_step": ({"warmup_steps": 1}, 1),
    "beyond_the_end": ({"warmup_steps": 20}, 20),
    "share": ({"warmup_steps": 0.3}, 0.3),
    "ratio": ({"warmup_ratio": 0.2}, 0.2),
}


def reference(scheduler, warmup):
    count = transformers.TrainingArguments.get_warmup_steps(SimpleNamespace(warmup_steps=warmup),
                                                            STEPS)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule = transformers.get_scheduler(scheduler, optimizer, num_warmup_steps=count,
                                          num_training_steps=STEPS)
    rates = []
    for _ in range(STEPS):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("scheduler", ["constant", "constant_with_warmup", "linear", "cosine"])
def test_learning_rates(tiny_gpt2, scheduler, warmup, train, tmp_path):
    keys, theirs = WARMUPS[warmup]
    write_tokens(tmp_path / "tokens.bin", 16)
    records = train("out", model_name_or_path=tiny_gpt2, train_file=tmp_path / "tokens.bin",
                    block_size=8, learning_rate=PEAK, lr_scheduler_type=scheduler, max_steps=STEPS,
                    **keys)
    rates = [record["learning_rate"] for record in records]
    assert rates == pytest.approx(reference(scheduler, theirs), rel=1e-12, abs=0)
