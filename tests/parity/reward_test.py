# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`stage: rm` against a plain loop over transformers' …ForSequenceClassification and PEFT's adapters, a first step
against trl's RewardTrainer, and folders of reward models in both directions."""
import json
import shutil

import datasets
import peft
import pytest
import torch
import transformers
import trl
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid

from adapter_test import FAMILIES
from conftest import save_random_model
from judged_rows import (CONFIGS, CUTOFF, EVERY, LORA, PAD, SETTINGS, SIZES, STEPS, TOLERANCES, WHOLE, answers_of,
                         assert_same_metrics, assert_same_records, batches_in_order, mean_of, run_keys, save_scorer,
                         share_of, side_by_side, train_plainly, trl_arguments, trl_record, write_lines, write_pairs)
from judged_rows import tokenizer, tokenizer_folder  # noqa: F401 (fixtures)
from train_test import norms_in_float64  # noqa: F401 (a fixture)

pytestmark = pytest.mark.drawn(6)

METRICS = ("accuracy", "margin", "mean_reward", "min_reward", "max_reward")


def load_scorer(folder, dtype="float32"):
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=getattr(torch, dtype), output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.num_labels == 1
    return model.eval()


def scores_of(model, pairs):
    """Of the chosen ones and of the rejected ones, at the last token that is no padding."""
    return model(input_ids=side_by_side(answers_of(pairs))).logits[:, 0].double().chunk(2)


def reward(centring=0.0):
    def loss_of(model, pairs):
        chosen, rejected = scores_of(model, pairs)
        margins = torch.tensor([pair.margin for pair in pairs]).double()
        losses = -logsigmoid(chosen - rejected - margins) + centring * (chosen + rejected) ** 2
        both = torch.cat([chosen, rejected]).detach()
        accuracy, ties = share_of(chosen, rejected)
        return losses.mean(), {"accuracy": accuracy, "ties": ties, "margin": mean_of((chosen - rejected).detach()),
                               "mean_reward": mean_of(both), "min_reward": both.min().item(),
                               "max_reward": both.max().item()}

    return loss_of


def make_score_adapter(base, folder):
    """With random tensors, saved by PEFT, which adds `score` (and `classifier`) to modules_to_save."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", **LORA))
    assert "score" in adapted.peft_config["default"].modules_to_save
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)


def load_score_adapter(base, folder, **keys):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    model.config.pad_token_id = PAD
    return peft.PeftModel.from_pretrained(model, folder, **keys)


OPTIONS = {
    "plain": dict(distributed_strategy="zero2"),
    "packed": dict(packing=True, distributed_strategy="zero3"),
    "centred": dict(center_rewards_coefficient=0.05),
}


@pytest.mark.parametrize("margins", [False, True], ids=["plain", "margins"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("family", CONFIGS)
def test_thirty_steps(family, option, margins, tokenizer, tokenizer_folder, train, tmp_path):
    """Some pairs have a margin, others none."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer, margins=margins)
    folder = save_scorer(CONFIGS[family](), tmp_path / "model", 5)
    model = load_scorer(folder)
    expected = train_plainly(model, [pairs] * STEPS, reward(OPTIONS[option].get("center_rewards_coefficient", 0.0)))
    assert expected[-1]["loss"] < 0.5 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "rm", tokenizer_folder, save_strategy="steps", save_steps=STEPS,
                                      **EVERY, **OPTIONS[option]))
    assert_same_records(records, expected)
    found, wanted = (torch.cat(scores_of(m, pairs)) for m in (load_scorer(tmp_path / "out"), model))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("base", ["scorer", "language"])
def test_thirty_steps_of_an_adapter(base, packing, tokenizer, tokenizer_folder, train, tmp_path):
    """On a reward model, and on a language model: the score is the adapter's in either case."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    save = save_scorer if base == "scorer" else save_random_model
    folder = save(CONFIGS["llama"](), tmp_path / "model", 5)
    make_score_adapter(folder, tmp_path / "start")
    model = load_score_adapter(folder, tmp_path / "start", is_trainable=True)
    settings = SETTINGS | {"learning_rate": 3e-3}
    expected = train_plainly(model, [pairs] * STEPS, reward(), settings)
    assert expected[-1]["loss"] < 0.8 * expected[0]["loss"]
    records = train("out", **run_keys(tmp_path, "rm", tokenizer_folder, finetuning_type="lora", packing=packing,
                                      adapter_name_or_path=tmp_path / "start", save_strategy="steps", save_steps=STEPS,
                                      **EVERY, **settings))
    assert_same_records(records, expected)
    found, wanted = (torch.cat(scores_of(m.eval(), pairs))
                     for m in (load_score_adapter(folder, tmp_path / "out"), model))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("centring", [0.0, 0.1])
def test_few_steps_in_float64(centring, tokenizer, tokenizer_folder, train, tmp_path):
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer, margins=True)
    folder = save_scorer(CONFIGS["llama"](), tmp_path / "model", 5)
    expected = train_plainly(load_scorer(folder, "float64"), [pairs] * 3, reward(centring))
    records = train("out", **run_keys(tmp_path, "rm", tokenizer_folder, max_steps=3, dtype="float64",
                                      center_rewards_coefficient=centring, **EVERY))
    assert_same_records(records, expected, TOLERANCES["float64"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_other_pairs(ranks, tokenizer, tokenizer_folder, train, tmp_path):
    """Batches in skein's order; the last step of an epoch has fewer pairs, and a rank may have none."""
    pairs, _ = write_pairs(tmp_path / "rows.jsonl", tokenizer, count=10)
    folder = save_scorer(CONFIGS["llama"](), tmp_path / "model", 5)
    alone = train("order", **run_keys(tmp_path, "rm", tokenizer_folder, per_device_train_batch_size=1, max_steps=100,
                                      learning_rate=0))
    with torch.no_grad():
        chosen, rejected = scores_of(load_scorer(folder), pairs)
    batches = batches_in_order((chosen - rejected).tolist(), [record["margin"] for record in alone], 4)
    steps = [[pairs[i] for i in batch] for batch in batches]
    assert len(steps) == STEPS
    expected = train_plainly(load_scorer(folder), steps, reward())
    records = train("out", ranks, **run_keys(tmp_path, "rm", tokenizer_folder,
                                             per_device_train_batch_size=4 // ranks))
    assert_same_records(records, expected)


# trl leaves out pairs that are too long, where skein cuts them: none is. It takes a margin of all pairs or of none.
@pytest.mark.parametrize("margins", [False, "all"], ids=["plain", "margins"])
@pytest.mark.parametrize("centring", [None, 0.05])
@pytest.mark.parametrize("form", ["messages", "text"])
def test_first_step_of_trl(form, centring, margins, tokenizer, tokenizer_folder, train, tmp_path):
    _, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer, (form,), cutoff=WHOLE, margins=margins)
    folder = save_scorer(CONFIGS["qwen2"](), tmp_path / "model", 5)
    arguments = trl_arguments(trl.RewardConfig, tmp_path, max_length=WHOLE, center_rewards_coefficient=centring)
    trainer = trl.RewardTrainer(load_scorer(folder), arguments, train_dataset=datasets.Dataset.from_list(rows),
                                processing_class=tokenizer)
    expected = trl_record(trainer)
    [record] = train("out", **run_keys(tmp_path, "rm", tokenizer_folder, cutoff_len=WHOLE, max_steps=1,
                                       center_rewards_coefficient=centring or 0, **EVERY))
    for name in ("loss", *METRICS):
        assert record[name] == pytest.approx(expected[name], rel=1e-5, abs=0 if name == "loss" else 1e-5), name
    assert record["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)


def evaluate(run_skein, tokenizer_folder, cwd, model, rows, *words):
    command = ["eval", model, "--dataset", rows, "--json", "--device", "cpu", "--dtype", "float32", "--template",
               "chatml", "--tokenizer", tokenizer_folder, "--cutoff-len", CUTOFF, "--nproc-per-node", 1, *words]
    return json.loads(run_skein(command, cwd).stdout)


def assert_same_scores(run_skein, tokenizer_folder, tmp_path, model, rows, pairs, expected, *words):
    """Of all pairs, and of single ones, where the metrics give both scores away."""
    with torch.no_grad():
        loss, metrics = reward()(expected, pairs)
        chosen, rejected = scores_of(expected, pairs)
    found = evaluate(run_skein, tokenizer_folder, tmp_path, model, tmp_path / "rows.jsonl", *words)
    assert_same_metrics(found, {"loss": loss.item()}, 1e-5, "eval_")
    assert_same_metrics(found, metrics, 1e-5)
    for i in range(0, len(pairs), 5):
        write_lines(tmp_path / "one.jsonl", rows[i:i + 1])
        found = evaluate(run_skein, tokenizer_folder, tmp_path, model, tmp_path / "one.jsonl", *words)
        scores = [(found["min_reward"], found["max_reward"])[(found["margin"] > 0) == is_chosen]
                  for is_chosen in (True, False)]
        assert scores == pytest.approx([chosen[i].item(), rejected[i].item()], rel=1e-5, abs=1e-5), i


# Of each family a configuration with the vocabulary of these tests.
def scorer_config(family):
    config = CONFIGS[family]() if family in CONFIGS else FAMILIES[family]()
    config.vocab_size, config.pad_token_id = SIZES["vocab_size"], None
    if family == "gpt2":
        config.n_positions = SIZES["max_position_embeddings"]
    else:
        config.max_position_embeddings = SIZES["max_position_embeddings"]
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reward_model_of_transformers(family, tokenizer, tokenizer_folder, run_skein, train, tmp_path):
    """Its scores, and some steps more."""
    pairs, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    folder = save_scorer(scorer_config(family), tmp_path / "model", 5)
    model = load_scorer(folder)
    assert_same_scores(run_skein, tokenizer_folder, tmp_path, folder, rows, pairs, model)
    expected = train_plainly(model.train(), [pairs] * 3, reward())
    records = train("out", **run_keys(tmp_path, "rm", tokenizer_folder, max_steps=3, **EVERY))
    assert_same_records(records, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reward_model_of_skein(family, tokenizer, tokenizer_folder, run_skein, train, tmp_path):
    """Begun with a language model."""
    pairs, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    source = save_random_model(scorer_config(family), tmp_path / "model", 5)
    train("out", **run_keys(tmp_path, "rm", tokenizer_folder, max_steps=4, warmup_steps=0, learning_rate=1e-2,
                            save_strategy="steps", save_steps=4, **EVERY))
    config = json.loads((tmp_path / "out/config.json").read_text())
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=1)
    assert config["architectures"] == [type(theirs).__name__]
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").num_labels == 1
    stored = load_file(tmp_path / "out/model.safetensors")
    assert set(stored) == set(theirs.state_dict())
    assert stored["score.weight"].shape == (1, config.get("hidden_size") or config["n_embd"])
    model = load_scorer(tmp_path / "out")
    assert model.config.pad_token_id == PAD  # the tokenizer's: transformers looks for it in rows side by side
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out").pad_token_id == PAD
    assert_same_scores(run_skein, tokenizer_folder, tmp_path, tmp_path / "out", rows, pairs, model)


@pytest.mark.parametrize("finetuning_type", ["full", "lora"])
def test_tokenizer_and_model_pad_alike(finetuning_type, tokenizer, tokenizer_folder, run_skein, train, tmp_path):
    """This tokenizer pads with what ends a turn, as many do: transformers would look for the score there."""
    folder = tmp_path / "pads"
    shutil.copytree(tokenizer_folder, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": "<|im_end|>"}))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    write_pairs(tmp_path / "rows.jsonl", tokenizer)
    save_random_model(CONFIGS["llama"](pad_token_id=None), tmp_path / "model", 5)
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(config | {"pad_token_id": -1}))  # as older files have it
    train("out", **run_keys(tmp_path, "rm", folder, finetuning_type=finetuning_type, max_steps=1, save_strategy="steps",
                            save_steps=1, **EVERY))
    out = tmp_path / "out"
    if finetuning_type == "lora":
        out = tmp_path / "merged"
        run_skein(["merge", tmp_path / "out", "--out", out], tmp_path)
    model, tokenizer = load_scorer(out), transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer.pad_token_id == model.config.pad_token_id != tokenizer.convert_tokens_to_ids("<|im_end|>")
    texts = ["short<|im_end|>", "a text that is longer than the other<|im_end|>"]
    with torch.no_grad():
        together = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        alone = torch.cat([model(**tokenizer(one, return_tensors="pt")).logits for one in texts])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_an_adapter_of_skein(tokenizer, tokenizer_folder, run_skein, train, tmp_path):
    """Begun on a language model, read by PEFT; and merged."""
    pairs, rows = write_pairs(tmp_path / "rows.jsonl", tokenizer)
    source = save_random_model(CONFIGS["llama"](), tmp_path / "model", 5)
    train("out", **run_keys(tmp_path, "rm", tokenizer_folder, finetuning_type="lora", lora_rank=4, max_steps=4,
                            warmup_steps=0, learning_rate=1e-2, save_strategy="steps", save_steps=4, **EVERY))
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["task_type"] == "SEQ_CLS" and "score" in config["modules_to_save"]
    assert set(config) <= set(peft.LoraConfig().to_dict())
    model = load_score_adapter(source, tmp_path / "out").eval()
    stored = set(load_file(tmp_path / "out/adapter_model.safetensors"))
    assert stored == set(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    assert_same_scores(run_skein, tokenizer_folder, tmp_path, source, rows, pairs, model, "--adapter",
                       tmp_path / "out")
    run_skein(["merge", tmp_path / "out", "--out", tmp_path / "merged"], tmp_path)
    merged = load_scorer(tmp_path / "merged")
    assert merged.config.pad_token_id == PAD
    with torch.no_grad():
        found, wanted = (torch.cat(scores_of(m, pairs)) for m in (merged, model))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
