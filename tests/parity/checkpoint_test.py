# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Folders that skein writes, read by transformers, and the other way round."""
import json
import shutil
import subprocess

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from conftest import BUILD, gpt2_config, llama_config, save_random_model, write_tokens
from model_test import CONFIGS

BLOCK = 16
NUM_BLOCKS = 4


@pytest.fixture
def data(tmp_path):
    """The keys of a run whose every step sees all the data, and the tokens in rows."""
    tokens = write_tokens(tmp_path / "tokens.bin", NUM_BLOCKS * BLOCK, seed=2)
    keys = dict(train_file=tmp_path / "tokens.bin", block_size=BLOCK,
                per_device_train_batch_size=NUM_BLOCKS)
    return keys, tokens.view(NUM_BLOCKS, BLOCK)


def load(folder, dtype=torch.float32):
    """The model of a folder, which must have all its tensors and no other."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def loss_of(model, rows):
    with torch.no_grad():
        return model(input_ids=rows, labels=rows).loss.item()


def loss_in_skein(folder, data, train, **changes):
    """The first step's loss comes before any update; nothing is learnt."""
    keys, _ = data
    return train("measure", model_name_or_path=folder, max_steps=1, learning_rate=0,
                 **(keys | changes))[0]["loss"]


def logits_in_skein(folder, rows, tmp_path):
    save_file({"tokens": rows.contiguous()}, tmp_path / "rows.safetensors")
    subprocess.run([BUILD / "bin/skein-worker", "debug-forward", folder,
                    tmp_path / "rows.safetensors", tmp_path / "logits.safetensors"],
                   check=True, timeout=120)
    return load_file(tmp_path / "logits.safetensors")["logits"]


@pytest.fixture(params=[(1, "ddp"), (2, "zero3")], ids=["ddp", "zero3"])
def trained(request, tiny_model, data, train, tmp_path):
    """Output folder and records of four steps, saved after the second and the last."""
    ranks, strategy = request.param
    keys = data[0] | {"per_device_train_batch_size": NUM_BLOCKS // ranks}
    records = train("out", ranks, model_name_or_path=tiny_model, max_steps=4, save_steps=2,
                    learning_rate=1e-3, distributed_strategy=strategy, **keys)
    return tmp_path / "out", records


def test_transformers_loads_a_checkpoint(trained, data):
    output, records = trained
    _, rows = data
    loss = loss_of(load(output / "checkpoint-2"), rows)
    assert loss == pytest.approx(records[2]["loss"], rel=1e-5)
    # A folder of untrained weights would not pass.
    assert abs(records[2]["loss"] - records[0]["loss"]) > 1e-3


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_is_saved_as_it_was_read(name, data, train, tmp_path):
    source = save_random_model(CONFIGS[name](), tmp_path / "source")
    keys, rows = data
    records = train("out", 2, model_name_or_path=source, max_steps=2, learning_rate=1e-3,
                    distributed_strategy="zero3", **(keys | {"per_device_train_batch_size": NUM_BLOCKS // 2}))
    assert loss_of(load(source), rows) == pytest.approx(records[0]["loss"], rel=1e-5)
    output = tmp_path / "out"
    with torch.no_grad():
        logits = load(output)(input_ids=rows).logits
    found = logits_in_skein(output, rows, tmp_path)
    assert ((found - logits).norm() / logits.norm()).item() < 1e-5
    assert json.loads((output / "config.json").read_text()) == json.loads((source / "config.json").read_text())


def test_transformers_loads_the_final_model(trained, data, train, tmp_path):
    output, _ = trained
    _, rows = data
    model = load(output)
    assert loss_of(model, rows) == pytest.approx(loss_in_skein(output, data, train), rel=1e-5)
    with torch.no_grad():
        expected = model(input_ids=rows).logits
    found = logits_in_skein(output, rows, tmp_path)
    assert (found - expected).norm() / expected.norm() < 1e-5
    last = (output / "checkpoint-4" / "model.safetensors").read_bytes()
    assert (output / "model.safetensors").read_bytes() == last


def test_safetensors_opens_both_files(trained):
    folder = trained[0] / "checkpoint-4"
    parameters = dict(load(folder).named_parameters())
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(parameters)
        assert file.metadata() == {"format": "pt"}
        for name in file.keys():
            assert file.get_tensor(name).shape == parameters[name].shape
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        moments = {f"{name}.{kind}" for name in parameters for kind in ("exp_avg", "exp_avg_sq")}
        assert set(file.keys()) == moments
        for name in file.keys():
            assert file.get_tensor(name).shape == parameters[name.rpartition(".")[0]].shape


def test_trainer_state(trained):
    output, records = trained
    state = transformers.TrainerState.load_from_json(output / "checkpoint-2/trainer_state.json")
    assert (state.global_step, state.max_steps, state.epoch) == (2, 4, 2.0)
    assert state.log_history == records[:2]
    assert state.num_input_tokens_seen == 2 * NUM_BLOCKS * BLOCK
    state = transformers.TrainerState.load_from_json(output / "trainer_state.json")
    assert state.global_step == 4
    assert state.log_history == records


def test_config_is_kept(tiny_model, data, train, tmp_path):
    """Keys that skein does not know, and the order of all, stay; the dtype is that of the files."""
    source = tmp_path / "source"
    shutil.copytree(tiny_model, source)
    text = json.loads((source / "config.json").read_text())
    text = {"zebra": {"b": 1, "a": [None, 1.5]}} | text | {"aardvark": "né"}
    (source / "config.json").write_text(json.dumps(text))
    loss_in_skein(source, data, train, dtype="bfloat16")
    for folder in (tmp_path / "measure", tmp_path / "measure/checkpoint-1"):
        found = json.loads((folder / "config.json").read_text())
        assert list(found.items()) == list((text | {"dtype": "bfloat16"}).items())
        assert load(folder, "auto").dtype == torch.bfloat16


def test_sharded_model_loads(tiny_model, data, train, tmp_path):
    model = load(tiny_model)
    model.save_pretrained(tmp_path / "source", max_shard_size="30KB")
    assert len(list((tmp_path / "source").glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "source/model.safetensors").exists()
    loss = loss_in_skein(tmp_path / "source", data, train)
    assert loss == pytest.approx(loss_of(model, data[1]), rel=1e-5)


def test_bfloat16_model_loads(tiny_model, data, train, tmp_path):
    load(tiny_model, torch.bfloat16).save_pretrained(tmp_path / "source")
    loss = loss_in_skein(tmp_path / "source", data, train)
    assert loss == pytest.approx(loss_of(load(tmp_path / "source"), data[1]), rel=1e-5)
    assert loss != pytest.approx(loss_of(load(tiny_model), data[1]), rel=1e-7)


def test_hub_style_gpt2_loads(tiny_gpt2, data, train, tmp_path):
    """The hub's gpt2 has no `transformer.` before its names, and keeps the mask buffers."""
    source = tmp_path / "source"
    shutil.copytree(tiny_gpt2, source)
    tensors = load_file(source / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    assert set(bare) != set(tensors)
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = torch.ones(64, 64).tril().view(1, 1, 64, 64)
    save_file(bare, source / "model.safetensors", metadata={"format": "pt"})
    loss = loss_in_skein(source, data, train)
    assert loss == pytest.approx(loss_of(load(tiny_gpt2), data[1]), rel=1e-5)


@pytest.mark.parametrize("config", [gpt2_config(n_embd=64, n_layer=3, initializer_range=0.03),
                                    llama_config(hidden_size=64, intermediate_size=176)],
                         ids=["gpt2", "llama"])
def test_first_weights(config, data, train, tmp_path):
    """train_from_scratch draws as transformers does: tensor by tensor, the same mean and spread."""
    theirs = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path / "source")
    loss_in_skein(tmp_path / "source", data, train, train_from_scratch=True)
    ours = dict(load(tmp_path / "measure").named_parameters())
    assert set(ours) == {name for name, _ in theirs.named_parameters()}
    for name, expected in theirs.named_parameters():
        if expected.std() == 0:
            assert torch.equal(ours[name], expected), name
            continue
        # Six standard errors: of a mean, and of the ratio of two sample deviations.
        bound = 6 / expected.numel() ** 0.5
        deviation = expected.std().item()
        assert abs(ours[name].mean().item()) < bound * deviation, name
        assert ours[name].std().item() == pytest.approx(deviation, rel=bound), name
