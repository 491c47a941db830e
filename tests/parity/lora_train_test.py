# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""50 steps of `skein train` with finetuning_type lora, against transformers + peft and torch's AdamW, both from one
adapter that PEFT wrote; and adapters that skein wrote, read by PEFT."""
import json

import peft
import pytest
import torch
import transformers
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file

from adapter_test import assert_close, load, logits, make_adapter
from conftest import gemma3_config, gpt2_config, llama_config, phi3_config, save_random_model, write_tokens
from train_test import mean_loss

BLOCK, NUM_BLOCKS, STEPS = 32, 8, 50
SETTINGS = dict(learning_rate=3e-3, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.98, adam_epsilon=1e-6,
                max_grad_norm=1.0, warmup_steps=5, max_steps=STEPS, lr_scheduler_type="linear")

CONFIGS = {"llama": llama_config, "gpt2": gpt2_config}
TARGETS = {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn", "c_fc"]}
OPTIONS = {
    "plain": {},
    "rslora": dict(use_rslora=True, rank_pattern={"q_proj": 2, "c_attn": 2}),
    "saved": dict(modules_to_save=["lm_head"]),
    "dora": dict(use_dora=True),
}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "tokens.bin"
    return path, write_tokens(path, NUM_BLOCKS * BLOCK, seed=1).split(BLOCK)


def begin(folder, config, tmp_path, **keys):
    """A base, and an adapter with B that is not zero."""
    base = save_random_model(config, folder / "base", 5)
    make_adapter(base, tmp_path / "start", target_modules=TARGETS[config.model_type], **keys)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    return base, peft.PeftModel.from_pretrained(model, tmp_path / "start", is_trainable=True)


def plain_optimizer(model):
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": [p for n, p in named.items() if n in decayed], "weight_decay": SETTINGS["weight_decay"]},
              {"params": [p for n, p in named.items() if n not in decayed], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=SETTINGS["learning_rate"], eps=SETTINGS["adam_epsilon"],
                             betas=(SETTINGS["adam_beta1"], SETTINGS["adam_beta2"]))


def loraplus_optimizer(model, ratio):
    return create_loraplus_optimizer(model, torch.optim.AdamW, lr=SETTINGS["learning_rate"], loraplus_lr_ratio=ratio,
                                     loraplus_weight_decay=SETTINGS["weight_decay"], eps=SETTINGS["adam_epsilon"],
                                     betas=(SETTINGS["adam_beta1"], SETTINGS["adam_beta2"]))


def peft_run(model, blocks, optimizer):
    scheduler = transformers.get_scheduler("linear", optimizer, num_warmup_steps=SETTINGS["warmup_steps"],
                                           num_training_steps=STEPS)
    parameters = [p for p in model.parameters() if p.requires_grad]
    records = []
    for _ in range(STEPS):
        loss = mean_loss(model, blocks)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, SETTINGS["max_grad_norm"])
        records.append({"loss": loss.item(), "grad_norm": norm.item()})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return records


def skein_run(train, base, path, start, **keys):
    return train("out", ranks=2, model_name_or_path=base, train_file=path, block_size=BLOCK,
                 global_batch_size=NUM_BLOCKS, finetuning_type="lora", adapter_name_or_path=start, save_steps=STEPS,
                 **(SETTINGS | keys))


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert expected[-1]["loss"] < 0.98 * expected[0]["loss"]  # it learns
    for ours, theirs in zip(found, expected):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4), ours["step"]
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=2e-3), ours["step"]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("family", CONFIGS)
def test_fifty_steps_equal_peft(train, tmp_path, data, family, option):
    base, model = begin(tmp_path, CONFIGS[family](), tmp_path, **OPTIONS[option])
    records = skein_run(train, base, data[0], tmp_path / "start", distributed_strategy="zero2")
    assert_same(records, peft_run(model, data[1], plain_optimizer(model)))
    # What skein wrote, PEFT reads: names, shapes, configuration, and the same function.
    again = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "out")
    assert_close(logits(again.eval()), logits(model.eval()), 1e-4)


@pytest.mark.parametrize("dora", [False, True], ids=["plain", "dora"])
def test_an_adapter_of_a_tied_head_goes_on(train, run_skein, tmp_path, data, dora):
    """PEFT stores the embedding beside it, under the head's name."""
    base = save_random_model(llama_config(tie_word_embeddings=True), tmp_path / "base", 5)
    make_adapter(base, tmp_path / "start", target_modules=["q_proj", "lm_head"], use_dora=dora)
    assert "base_model.model.lm_head.base_layer.weight" in load_file(tmp_path / "start/adapter_model.safetensors")
    model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "start",
                                           is_trainable=True)
    records = skein_run(train, base, data[0], tmp_path / "start", distributed_strategy="zero3")
    assert_same(records, peft_run(model, data[1], plain_optimizer(model)))
    again = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "out")
    assert_close(logits(again.eval()), logits(model.eval()), 1e-4)
    run_skein(["plan", tmp_path / "out.yaml", f"output_dir={tmp_path}/new"], tmp_path)


@pytest.mark.parametrize("family", CONFIGS)
def test_an_adapter_that_holds_a_tied_embedding_goes_on(train, tmp_path, data, family):
    """PEFT stores it under the head's name too: asked to, or because a vocabulary was resized."""
    config = llama_config(tie_word_embeddings=True) if family == "llama" else gpt2_config()
    base, model = begin(tmp_path, config, tmp_path)
    model.save_pretrained(tmp_path / "start", save_embedding_layers=True)
    assert "base_model.model.lm_head.weight" in load_file(tmp_path / "start/adapter_model.safetensors")
    records = skein_run(train, base, data[0], tmp_path / "start", distributed_strategy="zero2")
    assert_same(records, peft_run(model, data[1], plain_optimizer(model)))


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["embed_tokens", "q_proj"]], ids=["linear", "embedding"])
def test_loraplus_equals_pefts_groups(train, tmp_path, data, targets):
    base = save_random_model(llama_config(), tmp_path / "base", 5)
    make_adapter(base, tmp_path / "start", target_modules=targets)
    model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "start",
                                           is_trainable=True)
    records = skein_run(train, base, data[0], tmp_path / "start", loraplus_lr_ratio=4)
    assert_same(records, peft_run(model, data[1], loraplus_optimizer(model, 4)))


NEW = {
    "plain": {},
    "rslora": dict(use_rslora=True, lora_alpha=7),
    "patterns": dict(rank_pattern={"q_proj": 2}, alpha_pattern={"v_proj": 5}),
    "regex": dict(lora_target=[r".*layers\.1\..*(q|up)_proj"]),
    "saved": dict(lora_target=["q_proj"], modules_to_save=["lm_head"]),
    "embedding": dict(lora_target=["q_proj", "embed_tokens"]),
    "dora": dict(use_dora=True),
    "head": dict(lora_target=["q_proj", "lm_head"]),
    "tied_head": dict(lora_target=["q_proj", "lm_head"]),
}


@pytest.mark.parametrize("option", NEW)
def test_peft_reads_what_skein_began(train, run_skein, tmp_path, data, option):
    began_by_skein(llama_config(tie_word_embeddings=option == "tied_head"), train, run_skein, tmp_path, data,
                   **NEW[option])


@pytest.mark.parametrize("config", [gemma3_config, phi3_config], ids=["gemma3", "phi3"])
def test_peft_reads_other_families(train, run_skein, tmp_path, data, config):
    """A tied head, norms of heads; fused projections."""
    began_by_skein(config(), train, run_skein, tmp_path, data, lora_target="all")


def began_by_skein(config, train, run_skein, tmp_path, data, **changes):
    base = save_random_model(config, tmp_path / "base", 5)
    keys = SETTINGS | dict(max_steps=3, warmup_steps=0, learning_rate=1e-2)
    train("out", model_name_or_path=base, train_file=data[0], block_size=BLOCK, global_batch_size=NUM_BLOCKS,
          finetuning_type="lora", lora_rank=4, save_steps=3, **(keys | changes))
    stored = set(load_file(tmp_path / "out/adapter_model.safetensors"))
    model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "out")
    ours = {name for name in peft.get_peft_model_state_dict(model, save_embedding_layers=False)}
    assert ours == stored
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    known = set(peft.LoraConfig().to_dict())
    assert set(config) <= known, set(config) - known
    # Unmerged in PEFT, merged by us: one function.
    run_skein(["merge", tmp_path / "out", "--out", tmp_path / "merged"], tmp_path)
    assert_close(logits(load(tmp_path / "merged")), logits(model.eval()))
    assert (logits(load(base)) - logits(model)).norm() > 1e-3
