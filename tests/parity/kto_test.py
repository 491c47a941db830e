# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`stage: kto` against a plain loop over transformers' and PEFT's models, and first steps against trl's KTOTrainer."""
import datasets
import peft
import pytest
import torch
import trl
from torch.nn.functional import sigmoid

from adapter_test import assert_close, logits, make_adapter
from judged_rows import (CONFIGS, CUTOFF, EVERY, LORA, SETTINGS, STEPS, TOLERANCES, assert_same_records,
                         batches_in_order, look, mean_of, run_keys, save_model, save_neighbour, token_numbers,
                         train_plainly, trl_arguments, trl_record, write_judged)
from judged_rows import tokenizer, tokenizer_folder  # noqa: F401 (fixtures)
from train_test import load_model, norms_in_float64  # noqa: F401 (a fixture)

pytestmark = pytest.mark.drawn(4)

KEYS = ("rewards", "logps", "logits")


def every_answer(samples):
    return [sample.answer for sample in samples] + [sample.mismatched for sample in samples]


def mean_ratio(model, answers):
    """Of log p, policy over reference, without gradients."""
    with torch.no_grad():
        tokens, _ = token_numbers(model, answers)
    return mean_of(of.sum() - answer.reference.sum() for of, answer in zip(tokens, answers, strict=True))


def kto(pref_loss="kto", pref_beta=0.1, kto_chosen_weight=1.0, kto_rejected_weight=1.0, pref_ftx=0.0):
    """The loss that skein's keys mean, and its metrics. kl is that of the whole step."""

    def loss_of(model, samples):
        kl = max(0.0, mean_ratio(model, [sample.mismatched for sample in samples])) if pref_loss == "kto" else 0.0
        answers = [sample.answer for sample in samples]
        good = torch.tensor([sample.desirable for sample in samples])
        tokens, means = token_numbers(model, answers)
        log_probs = torch.stack([of.sum() for of in tokens])
        ratios = log_probs - torch.stack([answer.reference.sum() for answer in answers])
        losses = torch.where(good, kto_chosen_weight * (1 - sigmoid(pref_beta * (ratios - kl))),
                             kto_rejected_weight * (1 - sigmoid(pref_beta * (kl - ratios))))
        loss = losses.mean()
        if pref_ftx and good.any():
            loss = loss - pref_ftx * torch.stack([of.mean() for of in tokens])[good].mean()
        metrics = {"kl": kl if pref_loss == "kto" else None}
        for name, mask in (("chosen", good), ("rejected", ~good)):
            logits_of = [of for of, counts in zip(means, mask) if counts]
            values = (pref_beta * ratios.detach()[mask], log_probs.detach()[mask],
                      torch.cat(logits_of) if logits_of else torch.tensor([]))
            metrics |= {f"{key}/{name}": mean_of(value) if len(value) else None for key, value in zip(KEYS, values)}
        return loss, metrics

    return loss_of


FULL = {
    "plain": dict(distributed_strategy="zero2"),
    "packed": dict(packing=True, distributed_strategy="zero3"),
    "cached": dict(precompute_ref_log_probs=True),
    "other_reference": dict(distributed_strategy="zero3"),
}


@pytest.mark.parametrize("option", FULL)
@pytest.mark.parametrize("family", CONFIGS)
def test_thirty_steps(family, option, tokenizer, tokenizer_folder, train, tmp_path):
    samples, _ = write_judged(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path, family)
    keys = dict(FULL[option])
    if option == "other_reference":
        keys["ref_model"] = save_neighbour(folder, tmp_path / "reference")
    look(load_model(keys.get("ref_model", folder), "float32"), every_answer(samples))
    model = load_model(folder, "float32")
    expected = train_plainly(model, [samples] * STEPS, kto())
    assert expected[-1]["loss"] < 0.8 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "kto", tokenizer_folder, save_strategy="steps", save_steps=STEPS,
                                      **EVERY, **keys))
    assert_same_records(records, expected)
    assert_close(logits(load_model(tmp_path / "out", "float32").eval()), logits(model), 1e-3)


@pytest.mark.parametrize("option", ["plain", "cached"])
def test_thirty_steps_of_an_adapter(option, tokenizer, tokenizer_folder, train, tmp_path):
    """The adapter's tensors are not zero at the start: the reference is the model without them."""
    samples, _ = write_judged(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path)
    make_adapter(folder, tmp_path / "start", **LORA)
    model = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "start", is_trainable=True)
    with model.disable_adapter():
        look(model, every_answer(samples))
    settings = SETTINGS | {"learning_rate": 3e-3}
    expected = train_plainly(model, [samples] * STEPS, kto(), settings)
    assert expected[-1]["loss"] < 0.9 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "kto", tokenizer_folder, finetuning_type="lora",
                                      adapter_name_or_path=tmp_path / "start", save_strategy="steps", save_steps=STEPS,
                                      precompute_ref_log_probs=option == "cached", **EVERY, **settings))
    assert_same_records(records, expected)
    again = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "out")
    assert_close(logits(again.eval()), logits(model.eval()), 1e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_other_answers(ranks, tokenizer, tokenizer_folder, train, tmp_path):
    """Batches in skein's order; the mismatched answers follow the file's."""
    samples, _ = write_judged(tmp_path / "rows.jsonl", tokenizer, count=10)
    folder = save_model(tmp_path)
    look(load_model(folder, "float32"), every_answer(samples))
    alone = train("order", **run_keys(tmp_path, "kto", tokenizer_folder, per_device_train_batch_size=1, max_steps=100,
                                      learning_rate=0))
    values = [sample.answer.reference.sum().item() for sample in samples]
    found = [record.get("logps/chosen", record.get("logps/rejected")) for record in alone]
    steps = [[samples[i] for i in batch] for batch in batches_in_order(values, found, 4)]
    assert len(steps) == STEPS
    # Some steps have answers of one kind alone.
    assert any(len({sample.desirable for sample in step}) == 1 for step in steps)
    look(load_model(save_neighbour(folder, tmp_path / "reference"), "float32"), every_answer(samples))
    expected = train_plainly(load_model(folder, "float32"), steps, kto())
    assert any(record["kl"] > 0.01 for record in expected)
    records = train("out", ranks, **run_keys(tmp_path, "kto", tokenizer_folder, ref_model=tmp_path / "reference",
                                             per_device_train_batch_size=4 // ranks))
    assert_same_records(records, expected)


CASES = {
    "kto": {},
    "beta": dict(pref_beta=0.4),
    "weights": dict(kto_chosen_weight=1.3, kto_rejected_weight=0.7),
    "apo_zero_unpaired": dict(pref_loss="apo_zero_unpaired", kto_rejected_weight=0.7),
    "pref_ftx": dict(pref_ftx=0.5),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case}-float64") for case in CASES])
def test_loss(case, tokenizer, tokenizer_folder, train, tmp_path):
    """Some steps from a model that is not its reference."""
    samples, _ = write_judged(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path)
    reference = save_neighbour(folder, tmp_path / "reference")
    look(load_model(reference, "float64"), every_answer(samples))
    expected = train_plainly(load_model(folder, "float64"), [samples] * 3, kto(**CASES[case]))
    assert case == "apo_zero_unpaired" or expected[0]["kl"] > 0.01
    records = train("out", **run_keys(tmp_path, "kto", tokenizer_folder, ref_model=reference, max_steps=3,
                                      dtype="float64", **EVERY, **CASES[case]))
    assert_same_records(records, expected, TOLERANCES["float64"])


# trl turns the answers round within each batch, and takes the mean over a batch, clamped per micro-batch; skein turns
# them round within the file and takes the mean over the step. They are the same where one batch is the file.
TRL_CASES = {
    "kto": {},
    "weights": dict(beta=0.3, desirable_weight=1.3, undesirable_weight=0.7),
    "apo_zero_unpaired": dict(loss_type="apo_zero_unpaired", undesirable_weight=0.7),
}


@pytest.mark.parametrize("form", ["messages", "text"])
@pytest.mark.parametrize("case", TRL_CASES)
def test_first_step_of_trl(case, form, tokenizer, tokenizer_folder, train, tmp_path):
    _, rows = write_judged(tmp_path / "rows.jsonl", tokenizer, (form,))
    folder = save_model(tmp_path, "qwen2")
    reference = save_neighbour(folder, tmp_path / "reference")
    arguments = trl_arguments(trl.KTOConfig, tmp_path, max_length=CUTOFF, **TRL_CASES[case])
    trainer = trl.KTOTrainer(load_model(folder, "float32"), load_model(reference, "float32"), arguments,
                             train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)
    expected = trl_record(trainer)
    [record] = train("out", **run_keys(tmp_path, "kto", tokenizer_folder, ref_model=reference, max_steps=1, **EVERY,
                                       **TRL_CASES[case]))
    names = ["loss", *(f"{key}/{name}" for key in KEYS for name in ("chosen", "rejected"))]
    for name in names + (["kl"] if case != "apo_zero_unpaired" else []):
        floor = 0 if name == "loss" or name.startswith("logps") else 1e-5
        assert record[name] == pytest.approx(expected[name], rel=1e-5, abs=floor), name
    assert record["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)
