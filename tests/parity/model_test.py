# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Logits, loss and gradients of tiny random checkpoints, against transformers."""
import json
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

from conftest import (BUILD, decoder_config, gemma2_config, gemma3_config, gpt2_config, llama_config, phi3_config,
                      save_random_model)

SLIDING = dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.5, 2.5], long_factor=[2.0, 4.0, 9.0])

CONFIGS = {
    "gpt2": gpt2_config,
    "gpt2_exact_gelu": lambda: gpt2_config(activation_function="gelu", n_inner=48),
    "gpt2_scaled": lambda: gpt2_config(scale_attn_by_inverse_layer_idx=True),
    "gpt2_unscaled": lambda: gpt2_config(scale_attn_weights=False),
    "gpt2_untied": lambda: gpt2_config(tie_word_embeddings=False),
    "llama": llama_config,
    "llama_tied": lambda: llama_config(tie_word_embeddings=True),
    "llama_all_heads": lambda: llama_config(num_key_value_heads=4),
    "llama_biases": lambda: llama_config(attention_bias=True, mlp_bias=True),
    "llama_head_dim": lambda: llama_config(head_dim=16, rms_norm_eps=1e-5),
    "llama_theta": lambda: llama_config(
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "llama_gelu": lambda: llama_config(hidden_act="gelu"),
    "llama_linear": lambda: llama_config(
        rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.5}),
    # Of rows longer than max_position_embeddings, which is what it looks at.
    "llama_dynamic": lambda: llama_config(max_position_embeddings=16, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}),
    "llama_llama3": lambda: llama_config(rope_parameters=LLAMA3, head_dim=12),
    "llama_yarn": lambda: llama_config(rope_parameters=YARN, head_dim=20),
    "llama_yarn_untruncated": lambda: llama_config(
        rope_parameters=YARN | {"truncate": False, "beta_fast": 8.0, "beta_slow": 2.0}, head_dim=20),
    "llama_yarn_mscale": lambda: llama_config(
        rope_parameters=YARN | {"mscale": 0.7, "mscale_all_dim": 0.5}),
    "llama_yarn_factor": lambda: llama_config(rope_parameters=YARN | {"attention_factor": 1.3}),
    "mistral": lambda: decoder_config("Mistral", sliding_window=None),
    "mistral_window": lambda: decoder_config("Mistral", sliding_window=8, head_dim=10),
    "qwen2": lambda: decoder_config("Qwen2", tie_word_embeddings=True),
    "qwen2_window": lambda: decoder_config("Qwen2", **SLIDING),
    "qwen3": lambda: decoder_config("Qwen3", head_dim=14),
    "qwen3_biases": lambda: decoder_config("Qwen3", head_dim=8, attention_bias=True, **SLIDING),
    "qwen3_yarn": lambda: decoder_config("Qwen3", rope_parameters=YARN, head_dim=16),
    "gemma2": gemma2_config,
    "gemma2_plain": lambda: gemma2_config(attn_logit_softcapping=None, final_logit_softcapping=None,
                                          attention_bias=True, tie_word_embeddings=False),
    "gemma2_layers": lambda: gemma2_config(layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "gemma3": gemma3_config,
    "gemma3_ropes": lambda: gemma3_config(final_logit_softcapping=4.0, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}),
    "phi3": phi3_config,
    "phi3_short": lambda: phi3_config(rope_parameters=LONG),
    "phi3_long": lambda: phi3_config(rope_parameters=LONG, original_max_position_embeddings=16),
    "phi3_partial": lambda: phi3_config(partial_rotary_factor=0.6, hidden_size=60, sliding_window=8),
}

# Files of transformers 4: the same model, its older keys.
OLDER_KEYS = {
    "llama_llama3": {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"}, "rope_theta": 500.0},
    "llama_linear": {"rope_scaling": {"type": "linear", "factor": 2.5}, "rope_theta": 100.0},
    "llama_yarn": {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
                   "rope_theta": 300.0},
    "phi3_long": {"rope_scaling": {"type": "longrope", **{k: LONG[k] for k in ("short_factor", "long_factor")}},
                  "rope_theta": 100.0},
    "gemma3_ropes": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 700.0,
                     "rope_local_base_freq": 30.0},
    "phi3_partial": {"rope_theta": 10000.0, "partial_rotary_factor": 0.6},
}

# float64 leaves mistakes and no rounding.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}


def relative(found, expected, floor=0.0):
    """The distance as a share of the expected norm, or of `floor` where that is larger."""
    found, expected = found.double(), expected.double()
    return ((found - expected).norm() / max(expected.norm(), floor)).item()


def wide_norm(self, x):
    """RMSNorm without its cast to float32, which a float64 model would keep."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def wide_gemma_norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


def wide_attention(module, query, key, value, attention_mask, scaling=None, softcap=None, **_):
    """Gemma 2's eager attention, without the softmax's cast to float32."""
    groups = module.num_key_value_groups
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    probabilities = torch.softmax(scores + attention_mask, dim=-1)
    return (probabilities @ value.repeat_interleave(groups, 1)).transpose(1, 2).contiguous(), probabilities


def widen(monkeypatch):
    """Makes transformers compute in float64 what it always casts to float32."""
    for norm in (modeling_llama.LlamaRMSNorm, modeling_mistral.MistralRMSNorm, modeling_qwen2.Qwen2RMSNorm,
                 modeling_qwen3.Qwen3RMSNorm, modeling_phi3.Phi3RMSNorm):
        monkeypatch.setattr(norm, "forward", wide_norm)
    for norm in (modeling_gemma2.Gemma2RMSNorm, modeling_gemma3.Gemma3RMSNorm):
        monkeypatch.setattr(norm, "forward", wide_gemma_norm)
    monkeypatch.setattr(modeling_gemma2, "eager_attention_forward", wide_attention)


def reference(folder, tokens, dtype):
    """Logits, loss sum and the gradients of the mean loss, by name."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.eval()
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return logits.detach(), loss.item() * tokens[:, 1:].numel(), gradients


def forward(folder, tokens, dtype, tmp_path):
    """What skein computes."""
    save_file({"tokens": tokens}, tmp_path / "tokens.safetensors")
    subprocess.run([BUILD / "bin/skein-worker", "debug-forward", folder,
                    tmp_path / "tokens.safetensors", tmp_path / "out.safetensors", "--dtype", dtype],
                   check=True, timeout=120)
    return load_file(tmp_path / "out.safetensors")


def random_tokens():
    return torch.randint(257, (3, 37), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CONFIGS)
def test_forward_and_backward(name, dtype, tmp_path, monkeypatch):
    if dtype == "float64":
        widen(monkeypatch)
    folder = save_random_model(CONFIGS[name](), tmp_path / "model", seed=3)
    tokens = random_tokens()
    found = forward(folder, tokens, dtype, tmp_path)
    logits, loss_sum, gradients = reference(folder, tokens, getattr(torch, dtype))

    tolerance = TOLERANCES[dtype]
    assert relative(found["logits"], logits) < tolerance
    assert abs(found["loss_sum"].item() - loss_sum) / abs(loss_sum) < tolerance
    assert {key.removeprefix("grad.") for key in found if key.startswith("grad.")} == set(gradients)
    # Some gradients (a key bias's) are mathematically zero: they are held to a share of all.
    floor = 1e-3 * torch.stack([g.double().norm() for g in gradients.values()]).norm()
    distances = {key: relative(found["grad." + key], g, floor) for key, g in gradients.items()}
    worst = max(distances, key=distances.get)
    assert distances[worst] < tolerance, (worst, distances[worst])


@pytest.mark.parametrize("name", OLDER_KEYS)
def test_older_keys(name, tmp_path):
    folder = save_random_model(CONFIGS[name](), tmp_path / "model", seed=3)
    tokens = random_tokens()
    expected = forward(folder, tokens, "float32", tmp_path)["logits"]
    config = json.loads((folder / "config.json").read_text())
    config = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype")}
    (folder / "config.json").write_text(json.dumps(config | OLDER_KEYS[name] | {"torch_dtype": "float32"}))
    found = forward(folder, tokens, "float32", tmp_path)["logits"]
    assert torch.equal(found, expected)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert relative(found, model(input_ids=tokens).logits) < 1e-5
