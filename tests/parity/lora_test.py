# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Models with adapters that PEFT made: logits, loss and the adapters' gradients, against transformers and PEFT."""
import json
import subprocess

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from conftest import (BUILD, decoder_config, gemma2_config, gemma3_config, gpt2_config, llama_config, phi3_config,
                      save_random_model)
from model_test import TOLERANCES, random_tokens, relative, widen

PREFIX = "base_model.model."
LLAMA = dict(tie_word_embeddings=False, attention_bias=True)
TIED = dict(tie_word_embeddings=True)
MODELS = {
    "llama": lambda: llama_config(**LLAMA),
    "llama_tied": lambda: llama_config(**TIED),
    "qwen2": lambda: decoder_config("Qwen2"),
    "qwen3": lambda: decoder_config("Qwen3", head_dim=14),
    "mistral": lambda: decoder_config("Mistral", sliding_window=8),
    "gemma2": gemma2_config,
    "gemma3": gemma3_config,
    "gpt2": gpt2_config,
    "phi3": phi3_config,
}
PATTERNS = dict(target_modules=["q_proj", "v_proj"], rank_pattern={r"layers\.1\..*": 3, "v_proj": 2},
                alpha_pattern={"model.layers.1.self_attn.q_proj": 9})
CASES = {
    **{f"{name}_all_linear": (name, dict(target_modules="all-linear")) for name in MODELS},
    **{f"{name}_dora": (name, dict(target_modules="all-linear", use_dora=True)) for name in MODELS},
    "llama_rslora": ("llama", dict(target_modules=["q_proj", "down_proj"], use_rslora=True)),
    "llama_patterns": ("llama", PATTERNS),
    "llama_rslora_patterns": ("llama", PATTERNS | dict(use_rslora=True)),
    "llama_regex": ("llama", dict(target_modules=r"model\.layers\.(?:0|1)\.(mlp|self_attn)\.(?:up|k)_proj")),
    "llama_layers": ("llama", dict(target_modules=["q_proj"], layers_to_transform=[1])),
    "llama_excluded": ("llama", dict(target_modules="all-linear", exclude_modules=["k_proj"])),
    "llama_head": ("llama", dict(target_modules=["q_proj", "lm_head"])),
    "llama_dora_head": ("llama", dict(target_modules=["q_proj", "lm_head"], use_dora=True)),
    "llama_tied_head": ("llama_tied", dict(target_modules=["q_proj", "lm_head"])),
    "llama_tied_dora_head": ("llama_tied", dict(target_modules=["q_proj", "lm_head"], use_dora=True)),
    "gemma2_dora_head": ("gemma2", dict(target_modules=["lm_head"], use_dora=True)),  # logits are capped
    "llama_embedding": ("llama", dict(target_modules=["embed_tokens", "q_proj"])),
    "llama_dora_embedding": ("llama_tied", dict(target_modules=["embed_tokens", "q_proj"], use_dora=True)),
    "llama_saved": ("llama", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head", "norm"])),
    "llama_tied_saved_embedding": ("llama_tied", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    "llama_tied_saved_head": ("llama_tied", dict(target_modules=["q_proj"], modules_to_save=["lm_head"])),
    "llama_tied_saved_both": ("llama_tied", dict(target_modules=["q_proj"],
                                                 modules_to_save=["embed_tokens", "lm_head"])),
    "gemma2_embedding": ("gemma2", dict(target_modules=["embed_tokens", "o_proj"])),
    "gpt2_embeddings": ("gpt2", dict(target_modules=["c_attn", "wte", "wpe"], use_rslora=True)),
    "gpt2_dora_embeddings": ("gpt2", dict(target_modules=["c_proj", "wte"], use_dora=True)),
}


def make_adapter(base, folder, keys):
    """An adapter of random tensors, written by PEFT."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = peft.LoraConfig(**(dict(r=4, lora_alpha=6, lora_dropout=0.0, task_type="CAUSAL_LM") | keys))
    adapted = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)


def file_name(name):
    """The name of a tensor in PEFT's files, without its prefix."""
    name = name.removeprefix(PREFIX).replace(".modules_to_save.default", "")
    name = name.replace(".lora_magnitude_vector.default.weight", ".lora_magnitude_vector")
    for end in (".default.weight", ".default"):
        if name.endswith(end):
            return name.removesuffix(end) + (".weight" if end == ".default.weight" else "")
    return name


def reference(base, adapter, tokens, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False)
    model.to(dtype).eval()
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    gradients = {file_name(name): p.grad for name, p in model.named_parameters() if p.requires_grad}
    return logits.detach(), loss.item() * tokens[:, 1:].numel(), gradients


def forward(base, adapter, tokens, dtype, tmp_path, code=0):
    save_file({"tokens": tokens}, tmp_path / "tokens.safetensors")
    result = subprocess.run([BUILD / "bin/skein-worker", "debug-forward", base, tmp_path / "tokens.safetensors",
                             tmp_path / "out.safetensors", "--dtype", dtype, "--adapter", adapter],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stderr
    return load_file(tmp_path / "out.safetensors") if code == 0 else result.stderr


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", CASES)
def test_adapted_models_equal_peft(case, dtype, tmp_path, monkeypatch):
    if dtype == "float64":
        widen(monkeypatch)
    name, keys = CASES[case]
    base = save_random_model(MODELS[name](), tmp_path / "base", seed=3)
    make_adapter(base, tmp_path / "adapter", keys | dict(fan_in_fan_out=name == "gpt2"))
    tokens = random_tokens()
    found = forward(base, tmp_path / "adapter", tokens, dtype, tmp_path)
    logits, loss_sum, gradients = reference(base, tmp_path / "adapter", tokens, getattr(torch, dtype))

    tolerance = TOLERANCES[dtype]
    # Gemma 3's norms amplify what float32 has rounded, by both sides and up to 2.3e-5; float64 tells mistakes apart.
    if dtype == "float32" and name.startswith("gemma3"):
        tolerance = 1e-4
    assert relative(found["logits"], logits) < tolerance
    assert abs(found["loss_sum"].item() - loss_sum) / abs(loss_sum) < tolerance
    assert {key.removeprefix("grad.") for key in found if key.startswith("grad.")} == set(gradients)
    floor = 1e-3 * torch.stack([g.double().norm() for g in gradients.values()]).norm()
    distances = {key: relative(found["grad." + key], g, floor) for key, g in gradients.items()}
    worst = max(distances, key=distances.get)
    assert distances[worst] < tolerance, (worst, distances[worst])


def test_an_adapter_matters(tmp_path):
    """Adapters are not zero: a forward pass without them would show."""
    base = save_random_model(MODELS["llama"](), tmp_path / "base", seed=3)
    tokens = random_tokens()
    logits = {}
    for scale in (6, 12):
        make_adapter(base, tmp_path / str(scale), dict(target_modules=["q_proj"], lora_alpha=scale))
        logits[scale] = forward(base, tmp_path / str(scale), tokens, "float32", tmp_path)["logits"].clone()  # not of the file
    assert relative(logits[6], logits[12]) > 1e-3


def test_adapters_that_do_not_fit_are_refused(tmp_path):
    base = save_random_model(MODELS["llama"](), tmp_path / "base", seed=3)
    make_adapter(base, tmp_path / "adapter", dict(target_modules=["q_proj"]))
    file = tmp_path / "adapter/adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"target_modules": ["q_porj"]}))
    error = forward(base, tmp_path / "adapter", random_tokens(), "float32", tmp_path, code=2)
    assert "no module 'q_porj'; did you mean 'q_proj'" in error
    file.write_text(json.dumps(config | {"target_modules": ["q_proj", "v_proj"]}))
    error = forward(base, tmp_path / "adapter", random_tokens(), "float32", tmp_path, code=2)
    assert "missing in the files (4): base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight" in error
