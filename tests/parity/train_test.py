# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Ten steps of `skein train`, against transformers' models and schedules and torch's AdamW."""
import functools

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.trainer_pt_utils import LabelSmoother

from conftest import gpt2_config, llama_config, save_random_model, write_tokens
from model_test import relative, wide_norm

CONFIGS = {
    "gpt2": gpt2_config,
    "gpt2_untied": lambda: gpt2_config(tie_word_embeddings=False),
    "llama": llama_config,  # untied, two key heads for four query heads
    "llama_tied": lambda: llama_config(tie_word_embeddings=True),
}

# Eight blocks, the last of 20 tokens: padding must not count.
BLOCK = 32
NUM_TOKENS = 7 * BLOCK + 20

STEPS = 10
# Gradient norms are near 1, so that every step clips. Where a gradient is mathematically zero (a
# key bias's) AdamW would make a step out of rounding; this epsilon is well above that.
SETTINGS = dict(learning_rate=3e-3, weight_decay=0.1, adam_beta1=0.85, adam_beta2=0.97,
                adam_epsilon=1e-5, max_grad_norm=0.25, warmup_steps=3, max_steps=STEPS)

# float64 leaves mistakes and no rounding.
TOLERANCES = {"float32": 1e-5, "float64": 1e-9}

# Each schedule on one rank and on two, each stage on two.
CASES = [("float32", "linear", 1, "ddp"), ("float32", "linear", 2, "zero3"),
         ("float32", "cosine", 2, "ddp"), ("float32", "cosine", 1, "zero3"),
         ("float64", "cosine", 1, "ddp"), ("float64", "cosine", 2, "zero1"),
         ("float64", "cosine", 2, "zero2"), ("float64", "cosine", 2, "zero3")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Path of a token file, and its blocks."""
    path = tmp_path_factory.mktemp("data") / "tokens.bin"
    return path, write_tokens(path, NUM_TOKENS, seed=1).split(BLOCK)


@pytest.fixture(autouse=True)
def norms_in_float64(request, monkeypatch):
    if "float64" in request.node.name:
        monkeypatch.setattr(LlamaRMSNorm, "forward", wide_norm)


def mean_loss(model, blocks, smoothing=0):
    """Cross-entropy, one mean over the targets of all blocks; smoothed as the Trainer does it."""
    if smoothing:
        labels = torch.nn.utils.rnn.pad_sequence(blocks, batch_first=True, padding_value=-100)
        output = {"logits": model(input_ids=labels.clamp_min(0)).logits}
        return LabelSmoother(epsilon=smoothing)(output, labels, shift_labels=True)
    padded = torch.nn.utils.rnn.pad_sequence(blocks, batch_first=True)
    targets = torch.nn.utils.rnn.pad_sequence([b[1:] for b in blocks], batch_first=True,
                                              padding_value=-100)
    logits = model(input_ids=padded).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_model(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))


def make_optimizer(model, settings):
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    named = dict(model.named_parameters())
    groups = [{"params": [p for n, p in named.items() if n in decayed],
               "weight_decay": settings["weight_decay"]},
              {"params": [p for n, p in named.items() if n not in decayed], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings["learning_rate"], eps=settings["adam_epsilon"],
                             betas=(settings["adam_beta1"], settings["adam_beta2"]))


def torch_run(folder, dtype, steps, settings):
    """Trains on the list of blocks of each step. Returns (records, tensors by skein's names)."""
    model = load_model(folder, dtype)
    optimizer = make_optimizer(model, settings)
    scheduler = transformers.get_scheduler(settings["lr_scheduler_type"], optimizer,
                                           num_warmup_steps=settings["warmup_steps"],
                                           num_training_steps=settings["max_steps"])
    records = []
    for blocks in steps:
        loss = mean_loss(model, blocks, settings.get("label_smoothing_factor", 0))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
        records.append({"loss": loss.item(), "grad_norm": norm.item(),
                        "learning_rate": scheduler.get_last_lr()[0]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach()
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"{name}.{moment}"] = optimizer.state[parameter][moment]
    return records, tensors


@functools.cache
def torch_whole_batches(folder, data_blocks, dtype, scheduler):
    return torch_run(folder, dtype, [data_blocks] * STEPS,
                     SETTINGS | {"lr_scheduler_type": scheduler})


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request, tmp_path_factory):
    return save_random_model(CONFIGS[request.param](), tmp_path_factory.mktemp(request.param), 5)


def assert_same_records(found, expected, tolerance):
    assert [r["step"] for r in found] == list(range(1, len(expected) + 1))
    for ours, theirs in zip(found, expected):
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=tolerance, abs=0), (ours["step"], key)


def assert_same_tensors(found, expected, kind, tolerance):
    """`kind` is the end of the names to compare: a moment, or nothing for weights."""
    moments = ("exp_avg", "exp_avg_sq")
    expected = {n: t for n, t in expected.items()
                if (n.rpartition(".")[2] == kind if kind else not n.endswith(moments))}
    found = {n: t for n, t in found.items() if not kind or n.rpartition(".")[2] == kind}
    assert set(found) == set(expected)
    floor = 1e-3 * torch.stack([t.double().norm() for t in expected.values()]).norm()
    distances = {n: relative(found[n], t, floor) for n, t in expected.items()}
    worst = max(distances, key=distances.get)
    assert distances[worst] < tolerance, (worst, distances[worst])


def assert_same_run(output, records, reference, tolerance):
    expected_records, expected = reference
    assert_same_records(records, expected_records, tolerance)
    last = output / f"checkpoint-{len(expected_records)}"
    assert_same_tensors(load_file(last / "model.safetensors"), expected, "", tolerance)
    assert_same_tensors(load_file(output / "model.safetensors"), expected, "", tolerance)
    states = load_file(last / "optimizer.safetensors")
    assert len(states) == 2 * len(load_file(last / "model.safetensors"))
    assert_same_tensors(states, expected, "exp_avg", tolerance)
    assert_same_tensors(states, expected, "exp_avg_sq", tolerance)


@pytest.mark.parametrize("dtype,scheduler,ranks,strategy", CASES)
def test_ten_steps(folder, data, dtype, scheduler, ranks, strategy, train, tmp_path):
    path, blocks = data
    records = train("out", ranks, model_name_or_path=folder, train_file=path, block_size=BLOCK,
                    dtype=dtype, distributed_strategy=strategy, lr_scheduler_type=scheduler,
                    per_device_train_batch_size=4 // ranks, gradient_accumulation_steps=2,
                    **SETTINGS)
    reference = torch_whole_batches(folder, blocks, dtype, scheduler)
    assert all(r["grad_norm"] > SETTINGS["max_grad_norm"] for r in reference[0])
    assert_same_run(tmp_path / "out", records, reference, TOLERANCES[dtype])


@pytest.mark.parametrize("changes", [{"max_grad_norm": 0}, {"weight_decay": 0},
                                     {"gradient_checkpointing": True},
                                     {"label_smoothing_factor": 0.15}], ids=lambda c: next(iter(c)))
def test_settings(folder, data, changes, train, tmp_path):
    path, blocks = data
    settings = SETTINGS | {"lr_scheduler_type": "linear"} | changes
    records = train("out", model_name_or_path=folder, train_file=path, block_size=BLOCK,
                    per_device_train_batch_size=8, **settings)
    # torch has no word for "do not clip"; a huge limit never scales.
    settings["max_grad_norm"] = settings["max_grad_norm"] or 1e30
    reference = torch_run(folder, "float32", [blocks] * STEPS, settings)
    assert_same_run(tmp_path / "out", records, reference, TOLERANCES["float32"])


def block_order(folder, data, epochs, train):
    """The numbers of the blocks as skein reads them, found by their losses: nothing is learnt."""
    path, blocks = data
    records = train("order", model_name_or_path=folder, train_file=path, block_size=BLOCK,
                    per_device_train_batch_size=1, max_steps=epochs * len(blocks), learning_rate=0)
    with torch.no_grad():
        model = load_model(folder, "float32")
        losses = torch.stack([mean_loss(model, [b]) for b in blocks])
    order = [(losses - r["loss"]).abs().argmin().item() for r in records]
    for begin in range(0, len(order), len(blocks)):
        assert sorted(order[begin:begin + len(blocks)]) == list(range(len(blocks)))
    return order


@pytest.mark.parametrize("ranks,strategy", [(1, "ddp"), (2, "zero3")])
def test_batches_of_three(folder, data, ranks, strategy, train, tmp_path):
    """Steps see different blocks, the last step of an epoch fewer, and a rank none at all."""
    path, blocks = data
    epochs = 4
    order = block_order(folder, data, epochs, train)
    steps = []
    for begin in range(0, len(order), len(blocks)):
        epoch = [blocks[i] for i in order[begin:begin + len(blocks)]]
        size = 3 if ranks == 1 else 6
        steps += [epoch[i:i + size] for i in range(0, len(epoch), size)]
    settings = SETTINGS | {"lr_scheduler_type": "cosine", "max_steps": len(steps)}
    records = train("out", ranks, model_name_or_path=folder, train_file=path, block_size=BLOCK,
                    per_device_train_batch_size=3, gradient_accumulation_steps=1,
                    distributed_strategy=strategy, **settings)
    reference = torch_run(folder, "float32", steps, settings)
    assert_same_run(tmp_path / "out", records, reference, TOLERANCES["float32"])
