# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The learning rate of every step, against transformers' schedules and its rule for warm-up."""
import math
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
    "one_step": ({"warmup_steps": 1}, 1),
    "beyond_the_end": ({"warmup_steps": 20}, 20),
    "share": ({"warmup_steps": 0.3}, 0.3),
    "ratio": ({"warmup_ratio": 0.2}, 0.2),
}

# Type, warm-up and lr_scheduler_kwargs, as in transformers. Nothing here ends with the run where a
# type can end earlier, so that every branch of a formula is reached.
SHAPES = [
    ("constant", 4, {}),
    ("constant_with_warmup", 4, {}),
    ("cosine", 4, {}),
    ("cosine", 0, {"num_cycles": 1.5}),
    ("cosine_with_restarts", 4, {}),
    ("cosine_with_restarts", 1, {"num_cycles": 3}),
    ("polynomial", 0, {}),
    ("polynomial", 4, {"lr_end": 1e-5, "power": 2.5}),
    ("inverse_sqrt", 0, {}),
    ("inverse_sqrt", 4, {}),
    ("inverse_sqrt", 4, {"timescale": 7}),
    ("cosine_with_min_lr", 4, {"min_lr": 1e-4}),
    ("cosine_with_min_lr", 0, {"min_lr_rate": 0.2, "num_cycles": 1.5}),
    ("warmup_stable_decay", 3, {"num_decay_steps": 5}),
    ("warmup_stable_decay", 4, {"num_decay_steps": 5, "warmup_type": "linear",
                                "decay_type": "1-sqrt", "num_stable_steps": 1}),
    ("warmup_stable_decay", 4, {"num_decay_steps": 4, "warmup_type": "cosine",
                                "decay_type": "linear", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 4, {"num_decay_steps": 5, "warmup_type": "1-sqrt",
                                "decay_type": "cosine", "min_lr_ratio": 0.2, "num_cycles": 1.5,
                                "num_stable_steps": 1}),
]


def reference(scheduler, warmup, **kwargs):
    count = transformers.TrainingArguments.get_warmup_steps(SimpleNamespace(warmup_steps=warmup),
                                                            STEPS)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule = transformers.get_scheduler(scheduler, optimizer, num_warmup_steps=count,
                                          num_training_steps=STEPS,
                                          scheduler_specific_kwargs=kwargs)
    rates = []
    for _ in range(STEPS):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


@pytest.fixture
def rates(tiny_gpt2, train, tmp_path):
    """rates(ranks=1, **keys) → the learning rate of each step."""
    write_tokens(tmp_path / "tokens.bin", 16)

    def run(ranks=1, **keys):
        defaults = dict(model_name_or_path=tiny_gpt2, train_file=tmp_path / "tokens.bin",
                        block_size=8, learning_rate=PEAK, max_steps=STEPS, save_strategy="no",
                        report_to="none")
        return [record["learning_rate"] for record in train("out", ranks, **(defaults | keys))]

    return run


@pytest.mark.parametrize("warmup", WARMUPS)
def test_warmup(warmup, rates):
    keys, theirs = WARMUPS[warmup]
    found = rates(lr_scheduler_type="linear", **keys)
    assert found == pytest.approx(reference("linear", theirs), rel=1e-12, abs=0)


@pytest.mark.filterwarnings("ignore:Both num_training_steps and num_stable_steps")
@pytest.mark.parametrize("scheduler,warmup,kwargs", SHAPES,
                         ids=[f"{name}-{'-'.join(kwargs) or 'plain'}" for name, _, kwargs in SHAPES])
def test_shape(scheduler, warmup, kwargs, rates):
    # As transformers' own arguments have them; config's tests hold that the bare keys are the same.
    nested = {"lr_scheduler_kwargs": kwargs} if kwargs else {}
    found = rates(lr_scheduler_type=scheduler, warmup_steps=warmup, **nested)
    assert found == pytest.approx(reference(scheduler, warmup, **kwargs), rel=1e-12, abs=0)


def nanogpt_rate(step, warmup, decay, floor):
    """nanoGPT's get_lr: it starts above zero, falls along a cosine and then stays."""
    if step < warmup:
        return PEAK * (step + 1) / (warmup + 1)
    if step > decay:
        return floor
    share = (step - warmup) / (decay - warmup)
    return floor + 0.5 * (1 + math.cos(math.pi * share)) * (PEAK - floor)


@pytest.mark.parametrize("warmup,decay,floor", [(3, 9, 7e-5), (0, STEPS, 1e-4), (4, 30, 0.0)])
def test_nanogpt(warmup, decay, floor, rates):
    ends = {} if decay == STEPS else {"lr_decay_iters": decay}
    found = rates(lr_scheduler_type="nanogpt", warmup_steps=warmup, min_lr=floor, **ends)
    expected = [nanogpt_rate(step, warmup, decay, floor) for step in range(STEPS)]
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


# Two blocks on each of two ranks: four for every update.
@pytest.mark.parametrize("keys,factor", [({"lr_scaling": "none"}, 1.0),
                                         ({"lr_scaling": "linear"}, 2.0),
                                         ({"lr_scaling": "sqrt"}, math.sqrt(2.0)),
                                         ({"lr_scaling": "linear", "lr_scaling_base_batch": 1}, 4.0)],
                         ids=["none", "linear", "sqrt", "linear_base_batch"])
def test_scaling_by_ranks(keys, factor, rates):
    found = rates(2, per_device_train_batch_size=2, lr_scheduler_type="cosine", warmup_steps=4,
                  **keys)
    expected = [factor * rate for rate in reference("cosine", 4)]
    assert found == pytest.approx(expected, rel=1e-12, abs=0)
