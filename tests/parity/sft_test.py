# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Fifty steps of `stage: sft` against transformers' tokens, masks, models and schedules, PEFT's adapters and torch's
AdamW."""
import json
import random

import peft
import pytest
import torch
import transformers

from adapter_test import make_adapter
from conftest import gpt2_config, llama_config, save_random_model, train_tokenizer
from train_test import load_model, make_optimizer, norms_in_float64  # noqa: F401 (a fixture)

STEPS = 50
SETTINGS = dict(learning_rate=2e-3, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.98, adam_epsilon=1e-5,
                max_grad_norm=0.5, warmup_steps=5, max_steps=STEPS)
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SPECIAL = [*TOKENS.values(), "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
# Family: its configuration, and the chat format that it learns.
CASES = {"llama": (llama_config(vocab_size=330, max_position_embeddings=192), "chatml"),
         "gpt2": (gpt2_config(vocab_size=330, n_positions=192), "llama3")}


def text(rng):
    return " ".join(rng.choices(["the", "Tea", "naïve", "42", "it's", "中文", "x=1;", "\n", "of"], k=rng.randint(1, 6)))


def conversations(count):
    rng = random.Random(3)
    for _ in range(count):
        messages = [{"role": "system", "content": text(rng)}] if rng.random() < 0.3 else []
        for _ in range(rng.randint(1, 3)):
            messages += [{"role": "user", "content": text(rng)}, {"role": "assistant", "content": text(rng)}]
        yield messages


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    rng = random.Random(0)
    train_tokenizer(folder, [text(rng) for _ in range(200)], SPECIAL, TOKENS, vocab_size=320)
    return folder


def write_rows(path, tokenizer_folder, template, run_skein):
    """Writes a file of conversations. Returns their (tokens, targets) as transformers makes them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    source = run_skein(["template", "show", template], tokenizer_folder).stdout.removesuffix("\n")
    rows = []
    with path.open("w") as file:
        for messages in conversations(12):
            file.write(json.dumps({"messages": messages}) + "\n")
            encoded = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=True, return_dict=True,
                                                    return_assistant_tokens_mask=True)
            ids, mask = torch.tensor(encoded["input_ids"]), torch.tensor(encoded["assistant_masks"])
            assert mask.sum() > 1 and len(ids) <= 192
            rows.append((ids, torch.where(mask.bool(), ids, -100)))
    return rows


def padded_loss(model, rows):
    """One mean over the targets of all rows, side by side."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([ids for ids, _ in rows], batch_first=True)
    targets = pad([targets for _, targets in rows], batch_first=True, padding_value=-100)
    mask = pad([torch.ones_like(ids) for ids, _ in rows], batch_first=True)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten())


def isolated_loss(model, rows):
    """The same, every row by itself: what a packed one must not see, and positions from zero."""
    sums = [torch.nn.functional.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], targets[1:], reduction="sum")
            for ids, targets in rows]
    return sum(sums) / sum((targets[1:] != -100).sum() for _, targets in rows)


def torch_losses(model, rows, mean_loss):
    optimizer = make_optimizer(model, SETTINGS)
    scheduler = transformers.get_scheduler("linear", optimizer, num_warmup_steps=SETTINGS["warmup_steps"],
                                           num_training_steps=STEPS)
    losses = []
    for _ in range(STEPS):
        loss = mean_loss(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["max_grad_norm"])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def skein_records(train, tmp_path, **keys):
    """All rows in every step, over two ranks: as many packs as there are, and more room than that."""
    return train("out", 2, stage="sft", model_name_or_path=tmp_path / "model", train_file=tmp_path / "chat.jsonl",
                 cutoff_len=192, per_device_train_batch_size=3, gradient_accumulation_steps=2,
                 lr_scheduler_type="linear", distributed_strategy="zero2", save_strategy="no", **SETTINGS, **keys)


def assert_same(records, expected, tolerance):
    assert expected[-1] < 0.8 * expected[0]
    assert [record["epoch"] for record in records] == list(range(1, STEPS + 1))
    for record, loss in zip(records, expected, strict=True):
        assert record["loss"] == pytest.approx(loss, rel=tolerance, abs=0), record["step"]


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("family", CASES)
def test_fifty_steps(family, dtype, packing, tokenizer_folder, run_skein, train, tmp_path):
    config, template = CASES[family]
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, template, run_skein)
    folder = save_random_model(config, tmp_path / "model", 5)
    expected = torch_losses(load_model(folder, dtype), rows, isolated_loss if packing else padded_loss)
    records = skein_records(train, tmp_path, template=template, tokenizer_name_or_path=tokenizer_folder,
                            packing=packing, dtype=dtype)
    assert_same(records, expected, TOLERANCES[dtype])


@pytest.mark.parametrize("packing", [False, True])
def test_fifty_steps_of_an_adapter(packing, tokenizer_folder, run_skein, train, tmp_path):
    config, template = CASES["llama"]
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, template, run_skein)
    folder = save_random_model(config, tmp_path / "model", 5)
    make_adapter(folder, tmp_path / "start", target_modules="all-linear")
    model = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "start", is_trainable=True)
    expected = torch_losses(model, rows, isolated_loss if packing else padded_loss)
    records = skein_records(train, tmp_path, template=template, tokenizer_name_or_path=tokenizer_folder,
                            packing=packing, finetuning_type="lora", adapter_name_or_path=tmp_path / "start")
    assert_same(records, expected, TOLERANCES["float32"])
