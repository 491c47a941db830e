# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`stage: dpo` against a plain loop over transformers' and PEFT's models, every loss against its formula, and first
steps against trl's own functions."""
import math
import types
import warnings

import datasets
import peft
import pytest
import torch
import transformers
import trl
from torch.nn.functional import logsigmoid

from adapter_test import assert_close, logits, make_adapter
from judged_rows import (CONFIGS, CUTOFF, EVERY, LORA, SETTINGS, STEPS, TOLERANCES, answers_of, assert_same_metrics,
                         assert_same_records, batches_in_order, look, mean_of, run_keys, save_model, save_neighbour,
                         share_of, token_numbers, train_plainly, trl_arguments, trl_record, write_pairs)
from judged_rows import tokenizer, tokenizer_folder  # noqa: F401 (fixtures)
from train_test import load_model, norms_in_float64  # noqa: F401 (a fixture)

pytestmark = pytest.mark.drawn(8)

# One rank, three micro-batches of two pairs: all pairs in every step.
SIX = dict(ranks=1, per_device_train_batch_size=2, gradient_accumulation_steps=3)
FEW = 3  # steps
FREE = {"simpo", "orpo", "sft"}  # no reference


class Terms:
    """Of each pair: p log-probabilities, r log-ratios, s their scores, n tokens, a averages; _c of the chosen one."""

    def __init__(self, model, pairs, keys):
        tokens, means = token_numbers(model, answers_of(pairs))
        half = len(pairs)
        self.beta = keys.get("pref_beta", 0.1)
        self.eps = keys.get("label_smoothing_factor", 0.0)
        self.n_c, self.n_r = (torch.tensor([len(t) for t in part]).double() for part in (tokens[:half], tokens[half:]))
        self.p_c, self.p_r = self.sums(tokens, keys)
        self.mean_logits = [torch.cat(part).mean() for part in (means[:half], means[half:])]
        self.a_c, self.a_r = self.p_c / self.n_c, self.p_r / self.n_r
        # What teaches the chosen answer by itself counts all of its tokens.
        self.whole_c = torch.stack([of_answer.sum() for of_answer in tokens[:half]])
        self.is_free = set(keys.get("pref_loss", ["sigmoid"])) <= FREE
        if not self.is_free:
            at_reference = self.sums([answer.reference for answer in answers_of(pairs)], keys)
            self.r_c, self.r_r = self.p_c - at_reference[0], self.p_r - at_reference[1]
            self.s_c, self.s_r = (self.score(r, keys) for r in (self.r_c, self.r_r))
            self.z = self.beta * (self.s_c - self.s_r)

    def sums(self, tokens, keys):
        """What is beyond the shorter answer's length counts ld_alpha."""
        alpha, half = keys.get("ld_alpha", 1.0), len(tokens) // 2
        sums = []
        for i, of_answer in enumerate(tokens):
            shorter = min(len(tokens[i % half]), len(tokens[i % half + half]))
            sums.append(of_answer[:shorter].sum() + alpha * of_answer[shorter:].sum())
        return torch.stack(sums).split(half)

    @staticmethod
    def score(r, keys):
        alpha = keys.get("f_alpha_divergence_coef", 0.5)
        return {"reverse_kl": lambda: r, "forward_kl": lambda: 1 - torch.exp(-r),
                "js_divergence": lambda: math.log(2) + logsigmoid(r),
                "alpha_divergence": lambda: (torch.exp((alpha - 1) * r) - 1) / (alpha - 1),
                }[keys.get("f_divergence_type", "reverse_kl")]()

    def odds(self):
        log_odds = [a - torch.log1p(-torch.exp(a)) for a in (self.a_c, self.a_r)]
        return log_odds[0] - log_odds[1]


def smoothed(z, eps):
    return -(1 - eps) * logsigmoid(z) - eps * logsigmoid(-z)


def discopop(t, keys):
    modulation = torch.sigmoid(t.z / keys.get("discopop_tau", 0.05))
    return (1 - modulation) * -logsigmoid(t.z) + modulation * torch.exp(-t.z)


# The mean over pairs of these; sft is one mean over the chosen tokens of the step.
FORMULAS = {
    "sigmoid": lambda t, _: smoothed(t.z, t.eps),
    "hinge": lambda t, _: torch.relu(1 - t.z),
    "ipo": lambda t, _: (t.s_c / t.n_c - t.s_r / t.n_r - 1 / (2 * t.beta)) ** 2,
    "robust": lambda t, _: ((1 - t.eps) * -logsigmoid(t.z) - t.eps * -logsigmoid(-t.z)) / (1 - 2 * t.eps),
    "exo_pair": lambda t, _: (torch.sigmoid(t.z) * (logsigmoid(t.z) - math.log(1 - t.eps))
                              + torch.sigmoid(-t.z) * (logsigmoid(-t.z) - math.log(t.eps))),
    "nca_pair": lambda t, _: (-logsigmoid(t.beta * t.r_c) - 0.5 * logsigmoid(-t.beta * t.r_c)
                              - 0.5 * logsigmoid(-t.beta * t.r_r)),
    "sppo_hard": lambda t, _: (t.r_c - 0.5 / t.beta) ** 2 + (t.r_r + 0.5 / t.beta) ** 2,
    "apo_zero": lambda t, _: 1 - torch.sigmoid(t.beta * t.r_c) + torch.sigmoid(t.beta * t.r_r),
    "apo_down": lambda t, _: torch.sigmoid(t.beta * t.r_c) + 1 - torch.sigmoid(t.beta * (t.r_c - t.r_r)),
    "discopop": discopop,
    "sigmoid_norm": lambda t, _: -logsigmoid(t.beta * (t.s_c / t.n_c - t.s_r / t.n_r)),
    "simpo": lambda t, keys: smoothed(t.beta * (t.a_c - t.a_r) - keys.get("simpo_gamma", 0.5), t.eps),
    "orpo": lambda t, _: -t.a_c - t.beta * logsigmoid(t.odds()),
    "sft": lambda t, _: -t.whole_c.sum() / t.n_c.sum(),
}


def preference(**keys):
    """The loss that skein's keys mean, and its metrics."""
    losses = keys.get("pref_loss", ["sigmoid"])
    weights = keys.get("loss_weights", [1.0] * len(losses))

    def loss_of(model, pairs):
        t = Terms(model, pairs, keys)
        loss = sum(weight * FORMULAS[name](t, keys).mean() for name, weight in zip(losses, weights, strict=True))
        loss = loss + keys.get("rpo_alpha", 0) * FORMULAS["sft"](t, keys)
        loss = loss - keys.get("pref_ftx", 0) * (t.whole_c / t.n_c).mean()
        return loss, metrics_of(t)

    def metrics_of(t):
        told = (t.a_c, t.a_r) if {"simpo", "orpo"} & set(losses) else (t.p_c, t.p_r)
        chosen, rejected = (t.beta * value.detach() for value in (told if t.is_free else (t.r_c, t.r_r)))
        accuracy, ties = share_of(chosen, rejected)
        metrics = {"rewards/chosen": mean_of(chosen), "rewards/rejected": mean_of(rejected),
                   "rewards/margins": mean_of(chosen - rejected), "rewards/accuracies": accuracy, "ties": ties,
                   "logps/chosen": mean_of(told[0].detach()), "logps/rejected": mean_of(told[1].detach()),
                   "logits/chosen": t.mean_logits[0].item(), "logits/rejected": t.mean_logits[1].item()}
        has_nll = "sft" in losses or keys.get("rpo_alpha") or keys.get("pref_ftx")
        metrics["nll_loss"] = FORMULAS["sft"](t, keys).item() if has_nll else None
        odds = t.odds().detach() if "orpo" in losses else None
        metrics["log_odds_chosen"] = None if odds is None else mean_of(odds)
        metrics["log_odds_ratio"] = None if odds is None else mean_of(logsigmoid(odds))
        return metrics

    return loss_of


FULL = {
    "plain": dict(distributed_strategy="zero2"),
    "packed": dict(packing=True, distributed_strategy="zero3"),
    "cached": dict(precompute_ref_log_probs=True, distributed_strategy="ddp"),
    "other_reference": dict(distributed_strategy="zero3"),
}


@pytest.mark.parametrize("option", FULL)
@pytest.mark.parametrize("family", CONFIGS)
def test_thirty_steps(family, option, tokenizer, tokenizer_folder, train, tmp_path):
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path, family)
    keys = dict(FULL[option])
    if option == "other_reference":
        keys["ref_model"] = save_neighbour(folder, tmp_path / "reference")
    look(load_model(keys.get("ref_model", folder), "float32"), answers_of(pairs))
    model = load_model(folder, "float32")
    expected = train_plainly(model, [pairs] * STEPS, preference())
    assert expected[-1]["loss"] < 0.5 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, save_strategy="steps", save_steps=STEPS,
                                      **EVERY, **keys))
    assert_same_records(records, expected)
    # An ordinary model.
    assert_close(logits(load_model(tmp_path / "out", "float32").eval()), logits(model), 1e-3)


ADAPTED = {"plain": {}, "packed": dict(packing=True, distributed_strategy="zero3"),
           "cached": dict(precompute_ref_log_probs=True), "other_reference": {}}


@pytest.mark.parametrize("option", ADAPTED)
@pytest.mark.parametrize("family", CONFIGS)
def test_thirty_steps_of_an_adapter(family, option, tokenizer, tokenizer_folder, train, tmp_path):
    """The adapter's tensors are not zero at the start: the reference is the model without them."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path, family)
    make_adapter(folder, tmp_path / "start", **LORA)
    keys = dict(ADAPTED[option], finetuning_type="lora", adapter_name_or_path=tmp_path / "start", learning_rate=3e-3)
    model = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "start", is_trainable=True)
    if option == "other_reference":
        keys["ref_model"] = save_neighbour(folder, tmp_path / "reference")
        look(load_model(keys["ref_model"], "float32"), answers_of(pairs))
    else:
        with model.disable_adapter():
            look(model, answers_of(pairs))
    settings = SETTINGS | {"learning_rate": 3e-3}
    expected = train_plainly(model, [pairs] * STEPS, preference(), settings)
    assert expected[-1]["loss"] < 0.8 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, save_strategy="steps", save_steps=STEPS,
                                      **EVERY, **keys))
    assert_same_records(records, expected)
    again = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "out")
    assert_close(logits(again.eval()), logits(model.eval()), 1e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_other_pairs(ranks, tokenizer, tokenizer_folder, train, tmp_path):
    """Batches in skein's order; the last step of an epoch has fewer pairs, and a rank may have none."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer, count=10)
    folder = save_model(tmp_path)
    look(load_model(folder, "float32"), answers_of(pairs))
    epochs = 10
    alone = train("order", **run_keys(tmp_path, "dpo", tokenizer_folder, per_device_train_batch_size=1,
                                      max_steps=epochs * len(pairs), learning_rate=0))
    values = [pair.chosen.reference.sum().item() for pair in pairs]
    batches = batches_in_order(values, [record["logps/chosen"] for record in alone], 4)
    steps = [[pairs[i] for i in batch] for batch in batches]
    assert len(steps) == STEPS
    expected = train_plainly(load_model(folder, "float32"), steps, preference())
    records = train("out", ranks, **run_keys(tmp_path, "dpo", tokenizer_folder,
                                             per_device_train_batch_size=4 // ranks))
    assert_same_records(records, expected)


def test_evaluation(tokenizer, tokenizer_folder, train, tmp_path):
    """Every metric, over all pairs that were held back."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    held, _ = write_pairs(tmp_path / "held.jsonl", tokenizer, count=9, seed=8)
    folder = save_model(tmp_path)
    look(load_model(folder, "float32"), answers_of(pairs + held))
    model = load_model(folder, "float32")
    seen = []

    def loss_of(model, samples):
        with torch.no_grad():
            loss, metrics = preference()(model, held)
        seen.append({"loss": loss.item()} | metrics)
        return preference()(model, samples)

    train_plainly(model, [pairs] * 11, loss_of, SETTINGS)
    records = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, eval_file=tmp_path / "held.jsonl",
                                      eval_strategy="steps", eval_steps=5, per_device_eval_batch_size=2, max_steps=11,
                                      **EVERY))
    evaluations = {record["step"]: record for record in records if "eval_loss" in record}
    for step in (5, 10):
        assert_same_metrics(evaluations[step], seen[step], TOLERANCES["float32"], "eval_")


def assert_few_steps(keys, tokenizer, tokenizer_folder, train, tmp_path, dtype="float64"):
    """Some steps from a model that is not its reference, without mercy for rounding in float64."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer, count=6)
    folder = save_model(tmp_path)
    reference = {}
    if not set(keys["pref_loss"]) <= FREE:
        reference["ref_model"] = save_neighbour(folder, tmp_path / "reference")
        look(load_model(reference["ref_model"], dtype), answers_of(pairs))
    expected = train_plainly(load_model(folder, dtype), [pairs] * FEW, preference(**keys), SETTINGS)
    records = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, max_steps=FEW, dtype=dtype, **SIX,
                                      **reference, **keys))
    assert_same_records(records, expected, TOLERANCES[dtype])


CASES = {name: dict(pref_loss=[name]) for name in FORMULAS}
CASES["exo_pair"]["label_smoothing_factor"] = 0.05
CASES |= {
    "beta": dict(pref_loss=["sigmoid"], pref_beta=0.4),
    "cdpo": dict(pref_loss=["sigmoid"], label_smoothing_factor=0.2),
    "robust_smoothed": dict(pref_loss=["robust"], label_smoothing_factor=0.2),
    "simpo_smoothed": dict(pref_loss=["simpo"], label_smoothing_factor=0.1, pref_beta=2.0, simpo_gamma=1.2),
    "orpo_beta": dict(pref_loss=["orpo"], pref_beta=0.7),
    "ipo_beta": dict(pref_loss=["ipo"], pref_beta=0.3),
    "discopop_tau": dict(pref_loss=["discopop"], discopop_tau=0.4),
    "ld_alpha": dict(pref_loss=["sigmoid"], ld_alpha=0.4),
    "ld_alpha_of_averages": dict(pref_loss=["ipo"], ld_alpha=0.0),
    "ld_alpha_and_more": dict(pref_loss=["sigmoid", "sft"], ld_alpha=0.4, rpo_alpha=0.3, pref_ftx=0.2),
    "rpo_alpha": dict(pref_loss=["sigmoid"], rpo_alpha=0.6),
    "pref_ftx": dict(pref_loss=["sigmoid"], pref_ftx=0.6),
    "both": dict(pref_loss=["hinge"], rpo_alpha=0.3, pref_ftx=0.2),
    "free_and_ftx": dict(pref_loss=["simpo"], pref_ftx=0.2),
    "list": dict(pref_loss=["sigmoid", "sft"]),
    "weights": dict(pref_loss=["sigmoid", "apo_zero", "sft"], loss_weights=[0.8, 0.2, 1.5]),
    "free_list": dict(pref_loss=["orpo", "simpo"], loss_weights=[0.5, 2.0]),
    "mixed_list": dict(pref_loss=["hinge", "orpo"], loss_weights=[1.0, 0.25]),
}
CASES |= {f"{divergence}-{name}": dict(pref_loss=[name], f_divergence_type=divergence)
          for divergence in ("forward_kl", "js_divergence", "alpha_divergence") for name in ("sigmoid", "ipo")}
CASES |= {
    "alpha-0.8": dict(pref_loss=["hinge"], f_divergence_type="alpha_divergence", f_alpha_divergence_coef=0.8),
    "js-sigmoid_norm": dict(pref_loss=["sigmoid_norm"], f_divergence_type="js_divergence"),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case}-float64") for case in CASES])
def test_loss(case, tokenizer, tokenizer_folder, train, tmp_path):
    assert_few_steps(CASES[case], tokenizer, tokenizer_folder, train, tmp_path)


# trl's own spellings, which skein takes too. trl smooths robust and exo_pair alone (skein: sigmoid and simpo too), has
# no rpo_alpha and pref_ftx any more (its loss "sft" is rpo_alpha), and its mean over a batch is that of a step only
# where one batch is the step.
TRL_CASES = {
    **{name: dict(loss_type=[name]) for name in (
        "sigmoid", "hinge", "ipo", "robust", "nca_pair", "sppo_hard", "apo_zero", "apo_down", "discopop",
        "sigmoid_norm", "sft")},
    "exo_pair": dict(loss_type=["exo_pair"], label_smoothing=0.05),
    "robust_smoothed": dict(loss_type=["robust"], label_smoothing=0.2, beta=0.3),
    "ld_alpha": dict(loss_type=["sigmoid", "sft"], ld_alpha=0.4),
    "weights": dict(loss_type=["sigmoid", "apo_zero", "sft"], loss_weights=[0.8, 0.2, 1.5]),
    "forward_kl": dict(loss_type=["sigmoid"], f_divergence_type="forward_kl"),
    "js_divergence": dict(loss_type=["ipo"], f_divergence_type="js_divergence"),
    "alpha_divergence": dict(loss_type=["hinge"], f_divergence_type="alpha_divergence", f_alpha_divergence_coef=0.3),
}
NAMES = ("loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen",
         "logps/rejected", "logits/chosen", "logits/rejected")


def trl_first_step(model, reference, rows, tokenizer, tmp_path, **keys):
    arguments = trl_arguments(trl.DPOConfig, tmp_path, max_length=CUTOFF, **keys)
    trainer = trl.DPOTrainer(model, reference, arguments, train_dataset=datasets.Dataset.from_list(rows),
                             processing_class=tokenizer)
    return trl_record(trainer)


def assert_same_first_step(record, expected, names=NAMES):
    for name in names:
        # Means of numbers that lie around zero.
        floor = 0 if name == "loss" or name.startswith("logps") else 1e-5
        assert record[name] == pytest.approx(expected[name], rel=1e-5, abs=floor), name
    assert record["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("form", ["messages", "text"])
@pytest.mark.parametrize("case", TRL_CASES)
def test_first_step_of_trl(case, form, tokenizer, tokenizer_folder, train, tmp_path):
    """Its tokens, masks, truncation, log-probabilities, losses and metrics, of the same rows."""
    _, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer, (form,))
    folder = save_model(tmp_path)
    reference = save_neighbour(folder, tmp_path / "reference")
    expected = trl_first_step(load_model(folder, "float32"), load_model(reference, "float32"), rows, tokenizer,
                              tmp_path, **TRL_CASES[case])
    names, keys = NAMES, dict(TRL_CASES[case], ref_model=reference)
    if case == "sft":  # trl asks a reference in any case, and measures rewards against it
        names = [name for name in NAMES if not name.startswith("rewards")]
        del keys["ref_model"]
    [record] = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, max_steps=1, **EVERY, **keys))
    assert_same_first_step(record, expected, names)


def test_first_step_of_trl_with_an_adapter(tokenizer, tokenizer_folder, train, tmp_path):
    """Of an adapter that is there already trl's reference is a copy of it, skein's the model without it, which trl is
    given here."""
    _, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer, ("messages",))
    folder = save_model(tmp_path, "qwen2")
    make_adapter(folder, tmp_path / "start", **LORA)
    model = peft.PeftModel.from_pretrained(load_model(folder, "float32"), tmp_path / "start", is_trainable=True)
    expected = trl_first_step(model, load_model(folder, "float32"), rows, tokenizer, tmp_path)
    [record] = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, finetuning_type="lora", max_steps=1,
                                       adapter_name_or_path=tmp_path / "start", **EVERY))
    assert_same_first_step(record, expected)


def averages(folder, pairs):
    with torch.no_grad():
        t = Terms(load_model(folder, "float32"), pairs, dict(pref_loss=["simpo"]))
    return t.a_c, t.a_r


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_simpo_of_trl(smoothing, tokenizer, tokenizer_folder, train, tmp_path):
    """The function that CPOTrainer calls; its tokens are another matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.experimental.cpo import CPOTrainer
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path)
    its = types.SimpleNamespace(alpha=0.0, beta=2.0, simpo_gamma=1.2, label_smoothing=smoothing, loss_type="simpo",
                                accelerator=types.SimpleNamespace(device="cpu"))
    losses, chosen, rejected = CPOTrainer.cpo_loss(its, *averages(folder, pairs))
    [record] = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, pref_loss="simpo", pref_beta=2.0,
                                       simpo_gamma=1.2, label_smoothing=smoothing, max_steps=1, **EVERY))
    expected = {"loss": losses, "rewards/chosen": chosen, "rewards/rejected": rejected}
    for name, value in expected.items():
        assert record[name] == pytest.approx(value.mean().item(), rel=1e-5), name


def test_orpo_of_trl(tokenizer, tokenizer_folder, train, tmp_path):
    """Its first term in trl is the mean -log p of all tokens of prompts and chosen answers, not that of each chosen
    answer, as in the paper and in skein: the odds alone are compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.experimental.orpo import ORPOTrainer
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path)
    its = types.SimpleNamespace(beta=0.7, accelerator=types.SimpleNamespace(device="cpu"))
    a_c, a_r = averages(folder, pairs)
    losses, chosen, rejected, ratio, odds = ORPOTrainer.odds_ratio_loss(its, a_c, a_r)
    [record] = train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, pref_loss="orpo", pref_beta=0.7, max_steps=1,
                                       **EVERY))
    expected = {"loss": -a_c - losses, "rewards/chosen": chosen, "rewards/rejected": rejected,
                "log_odds_ratio": ratio, "log_odds_chosen": odds, "logps/chosen": a_c, "logps/rejected": a_r}
    for name, value in expected.items():
        assert record[name] == pytest.approx(value.mean().item(), rel=1e-5), name


def test_models_are_transformers_again(tokenizer, tokenizer_folder, train, tmp_path):
    """An adapter that skein began, read by PEFT."""
    write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_model(tmp_path)
    train("out", **run_keys(tmp_path, "dpo", tokenizer_folder, finetuning_type="lora", lora_rank=4, max_steps=3,
                            learning_rate=1e-2, save_strategy="steps", save_steps=3, **EVERY))
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    before = logits(base)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "out")
    assert adapted.peft_config["default"].task_type == "CAUSAL_LM"
    assert (logits(adapted.eval()) - before).norm() > 1e-3
