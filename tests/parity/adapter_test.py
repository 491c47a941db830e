# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Adapters that PEFT wrote, merged by `skein merge`, and models that `skein export` wrote, read by
transformers. Everything is made on the spot."""
import json
import re
import shlex
import subprocess
import sys

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file

from conftest import gpt2_config, llama_config, save_random_model

ROWS = torch.arange(2 * 12).view(2, 12) * 7 % 257


def small(kind, **changes):
    values = dict(vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
                  pad_token_id=0)
    return getattr(transformers, kind)(**(values | changes))


FAMILIES = {
    "gpt2": gpt2_config,
    "llama": llama_config,
    "llama_tied": lambda: llama_config(tie_word_embeddings=True),
    "mistral": lambda: small("MistralConfig"),
    "qwen2": lambda: small("Qwen2Config"),
    "qwen3": lambda: small("Qwen3Config"),
    "gemma2": lambda: small("Gemma2Config"),
    "gemma3": lambda: small("Gemma3TextConfig"),
    "phi3": lambda: small("Phi3Config"),
}
LINEAR = {"gpt2": ["c_attn", "attn.c_proj"], "phi3": ["qkv_proj", "down_proj"]}


def make_adapter(base, folder, dtype=torch.float32, **keys):
    """An adapter with random tensors, saved by PEFT; returns PEFT's model, not merged."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    config = peft.LoraConfig(**(dict(r=4, lora_alpha=6, task_type="CAUSAL_LM") | keys))
    adapted = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                noise = 0.1 * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(parameter + noise.to(parameter.dtype))
    adapted.save_pretrained(folder)
    # Read again: what the files say counts.
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    return peft.PeftModel.from_pretrained(model, folder).eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=ROWS).logits.float()


def load(folder, dtype=torch.float32):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def assert_close(found, expected, bound=1e-5):
    assert (found - expected).norm() / expected.norm() <= bound


def assert_merges(run_skein, tmp_path, base, **keys):
    adapted = make_adapter(base, tmp_path / "adapter", **keys)
    expected = logits(adapted)
    plain = logits(load(base))
    assert (expected - plain).norm() / plain.norm() > 1e-2  # an adapter that is left out would show
    run_skein(["merge", tmp_path / "adapter", "--out", tmp_path / "out"], tmp_path)
    merged = load(tmp_path / "out")
    assert_close(logits(merged), expected)
    return adapted, merged


@pytest.mark.parametrize("family", FAMILIES)
def test_merge_equals_peft(run_skein, tmp_path, family):
    base = save_random_model(FAMILIES[family](), tmp_path / "base")
    adapted, merged = assert_merges(run_skein, tmp_path, base,
                                    target_modules=LINEAR.get(family, ["q_proj", "v_proj", "down_proj"]),
                                    fan_in_fan_out=family == "gpt2")
    unloaded = dict(adapted.merge_and_unload().named_parameters())
    for name, parameter in merged.named_parameters():
        torch.testing.assert_close(parameter, unloaded[name], rtol=1e-6, atol=1e-6)


LAST = "model.layers.1.self_attn.q_proj"
OPTIONS = {
    "rslora": dict(use_rslora=True, target_modules=["q_proj"]),
    "dora": dict(use_dora=True, target_modules=["q_proj", "up_proj"]),
    "patterns": dict(target_modules=["q_proj", "v_proj"], rank_pattern={r"layers\.1\..*": 3, "v_proj": 2},
                     alpha_pattern={LAST: 9}, use_rslora=True),
    "regex": dict(target_modules=r"model\.layers\.(?:0|1)\.(mlp|self_attn)\.(?:up|k)_proj"),
    "all_linear": dict(target_modules="all-linear", exclude_modules=["k_proj"]),
    "layers": dict(target_modules=["q_proj"], layers_to_transform=[1]),
    "head": dict(target_modules=["q_proj"], modules_to_save=["lm_head", "norm"]),
    "lora_head": dict(target_modules=["lm_head"]),
    "embedding": dict(target_modules=["embed_tokens", "q_proj"]),
    "dora_embedding": dict(target_modules=["embed_tokens", "q_proj"], use_dora=True),
    "saved_embedding": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    "saved_both": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]),
}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("option", OPTIONS)
def test_options(run_skein, tmp_path, option, tied):
    base = save_random_model(llama_config(tie_word_embeddings=tied), tmp_path / "base")
    assert_merges(run_skein, tmp_path, base, **OPTIONS[option])


@pytest.mark.parametrize("option", [dict(use_dora=True), dict(use_rslora=True, rank_pattern={"c_attn": 2})],
                         ids=["dora", "patterns"])
def test_options_of_gpt2(run_skein, tmp_path, option):
    base = save_random_model(gpt2_config(), tmp_path / "base")
    assert_merges(run_skein, tmp_path, base, target_modules=["c_attn", "c_fc", "c_proj", "wte"], **option)


def test_merging_into_bfloat16_rounds_once(run_skein, tmp_path, tiny_llama):
    load(tiny_llama, torch.bfloat16).save_pretrained(tmp_path / "base")
    make_adapter(tmp_path / "base", tmp_path / "adapter", torch.bfloat16, target_modules=["q_proj"])
    run_skein(["merge", tmp_path / "adapter", "--out", tmp_path / "out", "--max-shard-size", "20kB"], tmp_path)
    assert (tmp_path / "out/model.safetensors.index.json").exists()
    base, out = load(tmp_path / "base", torch.bfloat16), load(tmp_path / "out", torch.bfloat16)
    lora = load_file(tmp_path / "adapter/adapter_model.safetensors")
    for layer in range(2):
        path = f"model.layers.{layer}.self_attn.q_proj"
        a, b = (lora[f"base_model.model.{path}.lora_{x}.weight"].double() for x in "AB")
        weight = base.get_submodule(path).weight.double()
        exact = weight + 1.5 * b @ a
        found = out.get_submodule(path).weight
        # The nearest bfloat16 but where the fp32 sum lies on the other side of the middle.
        assert (found == exact.float().to(torch.bfloat16)).float().mean() > 0.999
        # Half a step of bfloat16, and what fp32 rounds of the terms, which may cancel each other.
        terms = weight.abs() + 1.5 * b.abs() @ a.abs()
        assert torch.all((found.double() - exact).abs() <= exact.abs() * 2**-8 + terms * 2**-21)


def test_an_adapter_of_another_base_is_refused(run_skein, tmp_path, tiny_llama, tiny_gpt2):
    make_adapter(tiny_llama, tmp_path / "adapter", target_modules=["q_proj"])
    result = run_skein(["merge", tmp_path / "adapter", "--base", tiny_gpt2, "--out", tmp_path / "out"], tmp_path,
                       code=2)
    assert f"is an adapter of {tiny_llama} (digest " in result.stderr
    assert f"and --base is {tiny_gpt2} (digest " in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "float16"])
def test_exported_models_are_transformers(run_skein, tmp_path, tiny_model, dtype):
    words = ["--dtype", dtype] if dtype else []
    run_skein(["export", tiny_model, "--out", tmp_path / "out", "--max-shard-size", "30kB", *words], tmp_path)
    kept = getattr(torch, dtype or "float32")
    exported, expected = load(tmp_path / "out", "auto"), load(tiny_model, kept)
    assert exported.dtype == kept
    for (name, found), (_, wanted) in zip(exported.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(found, wanted), name
    assert torch.equal(logits(exported), logits(expected))


def test_shards_are_those_of_transformers(run_skein, tmp_path, tiny_llama):
    """The index holds the same keys and the same sums."""
    load(tiny_llama).save_pretrained(tmp_path / "theirs", max_shard_size="30kB")
    run_skein(["export", tmp_path / "theirs", "--out", tmp_path / "ours", "--max-shard-size", "30kB"], tmp_path)
    ours, theirs = (json.loads((tmp_path / who / "model.safetensors.index.json").read_text())
                    for who in ("ours", "theirs"))
    assert ours["metadata"] == theirs["metadata"]
    assert ours["weight_map"].keys() == theirs["weight_map"].keys()


def test_a_checkpoint_is_exported(run_skein, tmp_path, tiny_model, train):
    """Trained by skein, exported, and read: the weights of that step."""
    from conftest import write_tokens
    write_tokens(tmp_path / "tokens.bin", 64, seed=2)
    train("run", model_name_or_path=tiny_model, train_file=tmp_path / "tokens.bin", block_size=16, max_steps=2,
          save_steps=1, per_device_train_batch_size=4, learning_rate=1e-3)
    result = run_skein(["export", tmp_path / "run/checkpoint-1", "--out", tmp_path / "out"], tmp_path)
    assert "which is whole" in result.stderr
    assert torch.equal(logits(load(tmp_path / "out")), logits(load(tmp_path / "run/checkpoint-1")))
    assert not (tmp_path / "out/manifest.json").exists()
    weights = tmp_path / "run/checkpoint-1/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-3] ^= 1
    weights.write_bytes(damaged)
    result = run_skein(["export", tmp_path / "run/checkpoint-1", "--out", tmp_path / "no"], tmp_path, code=4)
    assert "is damaged" in result.stderr
    assert not (tmp_path / "no").exists()


def test_the_command_for_pickles_converts_them(run_skein, tmp_path, tiny_model):
    folder = tmp_path / "with pickle"
    model = load(tiny_model)
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    result = run_skein(["export", folder, "--out", tmp_path / "out"], tmp_path, code=2)
    command = shlex.split(re.search(r"python3 -c .*", result.stderr).group())
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=120, capture_output=True)
    run_skein(["export", folder, "--out", tmp_path / "out"], tmp_path)
    assert torch.equal(logits(load(tmp_path / "out")), logits(model))


def test_the_command_for_pickled_adapters_converts_them(run_skein, tmp_path, tiny_llama):
    adapted = make_adapter(tiny_llama, tmp_path / "adapter", target_modules=["q_proj"])
    file = tmp_path / "adapter/adapter_model.safetensors"
    torch.save(load_file(file), tmp_path / "adapter/adapter_model.bin")
    file.unlink()
    words = ["merge", tmp_path / "adapter", "--out", tmp_path / "out"]
    command = shlex.split(re.search(r"python3 -c .*", run_skein(words, tmp_path, code=2).stderr).group())
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=120, capture_output=True)
    run_skein(words, tmp_path)
    assert_close(logits(load(tmp_path / "out")), logits(adapted))
