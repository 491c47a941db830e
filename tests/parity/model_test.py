# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Logits, loss and gradients of tiny random checkpoints, against transformers."""
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from conftest import BUILD, gpt2_config, llama_config, save_random_model

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
}

# float64 leaves mistakes and no rounding.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}


def relative(found, expected, floor=0.0):
    """The distance as a share of the expected norm, or of `floor` where that is larger."""
    found, expected = found.double(), expected.double()
    return ((found - expected).norm() / max(expected.norm(), floor)).item()


def wide_norm(self, x):
    """LlamaRMSNorm without its cast to float32, which a float64 model would keep."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def reference(folder, tokens, dtype):
    """Logits, loss sum and the gradients of the mean loss, by name."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.eval()
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return logits.detach(), loss.item() * tokens[:, 1:].numel(), gradients


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CONFIGS)
def test_forward_and_backward(name, dtype, tmp_path, monkeypatch):
    if dtype == "float64":
        monkeypatch.setattr(LlamaRMSNorm, "forward", wide_norm)
    folder = save_random_model(CONFIGS[name](), tmp_path / "model", seed=3)
    tokens = torch.randint(257, (3, 37), generator=torch.Generator().manual_seed(1))
    save_file({"tokens": tokens}, tmp_path / "tokens.safetensors")
    subprocess.run([BUILD / "bin/skein-worker", "debug-forward", folder,
                    tmp_path / "tokens.safetensors", tmp_path / "out.safetensors", "--dtype", dtype],
                   check=True, timeout=120)
    found = load_file(tmp_path / "out.safetensors")
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
