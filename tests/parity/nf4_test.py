# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Weights in 4 bits, as `quantization_bit: 4` reads them, against bitsandbytes on the CPU: codes, scales and values to the
bit; and 50 steps of training beside them against transformers + peft + bitsandbytes."""
import subprocess

import bitsandbytes.functional as bnb
import numpy
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from adapter_test import make_adapter
from conftest import BUILD, gpt2_config, llama_config, save_random_model, write_tokens
from lora_train_test import BLOCK, NUM_BLOCKS, assert_same, peft_run, plain_optimizer, skein_run


def parts(data, numel, doubly):
    """Codes, scales, scales of scales and their mean: core/nf4_layout.h."""
    data = data.numpy()
    up = lambda size: -(-size // 16) * 16
    scales = -(-numel // 64)
    begin, end = up((numel + 1) // 2), up(up((numel + 1) // 2) + scales * (1 if doubly else 4))
    codes = data[:(numel + 1) // 2]
    if not doubly:
        return codes, data[begin:begin + 4 * scales].view(numpy.float32), None, None
    outer = -(-scales // 256)
    return codes, data[begin:begin + scales], data[end:end + 4 * outer].view(numpy.float32), data[end + 4 * outer:].view(numpy.float32)


def quantise(weight, doubly):
    """As bitsandbytes does it: codes and state. Flat: where rows are no whole blocks, its AVX-512 kernel takes the scales of
    other blocks when it makes values of them again."""
    return bnb.quantize_4bit(weight.float().view(-1), blocksize=64, quant_type="nf4", compress_statistics=doubly)


def assert_equal_weights(found, stored, doubly):
    names = [name for name in found if not name.endswith(".bytes")]
    assert names
    for name in names:
        weight = stored[name].float()
        packed, state = quantise(weight, doubly)
        codes, scales, outer, mean = parts(found[name + ".bytes"], weight.numel(), doubly)
        numpy.testing.assert_array_equal(codes, packed.numpy().reshape(-1), name)
        numpy.testing.assert_array_equal(scales, state.absmax.numpy(), name)
        if doubly:
            numpy.testing.assert_array_equal(outer, state.state2.absmax.numpy(), name)
            numpy.testing.assert_array_equal(mean, state.offset.numpy().reshape(1), name)
        values = bnb.dequantize_4bit(packed, state).view(weight.shape)
        assert torch.equal(found[name], values), name
        assert (values - weight).norm() < 0.2 * weight.norm()


@pytest.fixture
def quantised(tmp_path):
    """quantised(MODEL, doubly) → what debug-nf4 writes."""
    def run(folder, doubly):
        subprocess.run([BUILD / "bin/skein-worker", "debug-nf4", folder, tmp_path / "nf4.safetensors",
                        *([] if doubly else ["--single"])], check=True, timeout=60)
        return load_file(tmp_path / "nf4.safetensors")

    return run


@pytest.mark.parametrize("doubly", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("config", [llama_config(), llama_config(hidden_size=40, intermediate_size=51), gpt2_config(),
                                    llama_config(hidden_size=512, intermediate_size=1408)],
                         ids=["llama", "odd", "gpt2", "large"])
def test_weights_are_those_of_bitsandbytes(quantised, tmp_path, config, doubly):
    """Odd: last blocks that are not whole. Large: many blocks of scales. GPT-2's layers in the order of the file."""
    base = save_random_model(config, tmp_path / "base", 3)
    assert_equal_weights(quantised(base, doubly), load_file(base / "model.safetensors"), doubly)


def test_edges_of_the_type(quantised, tmp_path):
    """Zeros, equal values, ties between codes, tiny and huge scales, outliers."""
    base = save_random_model(llama_config(), tmp_path / "base", 3)
    tensors = load_file(base / "model.safetensors")
    type_values = bnb.get_4bit_type("nf4", device="cpu")
    for index, (name, weight) in enumerate(sorted(tensors.items())):
        if not name.endswith("_proj.weight"):
            continue
        flat = weight.view(-1)
        flat[:64] = 0
        flat[64:128] = 0.25
        flat[128:143] = (type_values[1:] + type_values[:-1]) / 2 * flat[128:192].abs().max()
        flat[192:256] *= 1e-30
        flat[256:320] *= 1e30
        flat[320 + index] = 50
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    for doubly in (False, True):
        found = quantised(base, doubly)
        for name in [name for name in found if not name.endswith(".bytes")]:
            values = bnb.dequantize_4bit(*quantise(tensors[name], doubly)).view(tensors[name].shape)
            assert torch.equal(found[name], values), name


def test_bfloat16_files(quantised, tmp_path):
    base = save_random_model(llama_config(), tmp_path / "base", 3)
    tensors = {name: value.bfloat16() for name, value in load_file(base / "model.safetensors").items()}
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    assert_equal_weights(quantised(base, True), tensors, True)


@pytest.mark.parametrize("doubly", [True, False], ids=["double", "single"])
def test_fifty_steps_equal_peft_beside_bitsandbytes(train, tmp_path, doubly):
    blocks = write_tokens(tmp_path / "tokens.bin", NUM_BLOCKS * BLOCK, seed=1).split(BLOCK)
    base = save_random_model(llama_config(hidden_size=64, intermediate_size=128), tmp_path / "base", 5)  # whole blocks
    make_adapter(base, tmp_path / "start", target_modules=["q_proj", "v_proj", "down_proj"])
    four_bits = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                bnb_4bit_use_double_quant=doubly, bnb_4bit_compute_dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, quantization_config=four_bits, device_map="cpu",
                                                              dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, tmp_path / "start", is_trainable=True)
    model.train()  # else bitsandbytes multiplies in bfloat16
    records = skein_run(train, base, tmp_path / "tokens.bin", tmp_path / "start", distributed_strategy="zero3",
                        quantization_bit=4, double_quantization=doubly)
    assert_same(records, peft_run(model, blocks, plain_optimizer(model)))
