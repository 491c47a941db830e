# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Rows of `skein gradients collect` against a plain loop of torch and peft, one sample at a time, projected by signs
that are computed here from docs/gradient_format.md."""
import json
import math
import subprocess
import sys

import numpy
import peft
import pytest
import torch
import transformers
import xxhash
from safetensors.torch import load_file

from adapter_test import make_adapter
from conftest import ROOT, llama_config, save_random_model
from sft_test import tokenizer_folder, write_rows  # noqa: F401 (a fixture)

DIMENSION = 192
FAMILIES = {
    "llama": lambda: llama_config(vocab_size=330, max_position_embeddings=192),
    "qwen2": lambda: transformers.Qwen2Config(vocab_size=330, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=192,
                                              bos_token_id=1, eos_token_id=2, pad_token_id=0),
}
MASK = (1 << 64) - 1


def mix(key, part):
    z = (key + 0x9E3779B97F4A7C15 * (part + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def philox(key, low, high):
    """Four words of 32 bits for every counter (arrays of uint64)."""
    word = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = word[0] * numpy.uint64(0xD2511F53), word[2] * numpy.uint64(0xCD9E8D57)
        word = [(second >> numpy.uint64(32)) ^ word[1] ^ numpy.uint64(keys[0]), second & numpy.uint64(0xFFFFFFFF),
                (first >> numpy.uint64(32)) ^ word[3] ^ numpy.uint64(keys[1]), first & numpy.uint64(0xFFFFFFFF)]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return word


def stream_of(name):
    return mix(mix(0, 0x6772616470726F6A), xxhash.xxh3_64_intdigest(name.encode()))


def signs(stream, elements, columns):
    matrix = numpy.empty((elements, columns))
    index = numpy.arange(elements, dtype=numpy.uint64)
    for group in range((columns + 127) // 128):
        words = philox(stream, index, numpy.full(elements, group, dtype=numpy.uint64))
        for column in range(128 * group, min(128 * group + 128, columns)):
            bit = words[column % 128 // 32] >> numpy.uint64(column % 32) & numpy.uint64(1)
            matrix[:, column] = numpy.where(bit == 1, 1.0, -1.0)
    return torch.from_numpy(matrix)


def plain_name(name):
    """As skein's files call it."""
    return name.removeprefix("base_model.model.").replace(".default.", ".").replace("lora_magnitude_vector.default.weight",
                                                                                    "lora_magnitude_vector").replace(
        "lora_magnitude_vector.weight", "lora_magnitude_vector")


def formed(gradient, kind, moments):
    if kind == "sign":
        return gradient.sign()
    if kind == "sgd":
        return gradient
    first, second = moments
    return (0.9 * first + 0.1 * gradient) / (0.999 * second + 0.001 * gradient**2 + 1e-8).sqrt()


def expected_rows(model, rows, chosen, kind, moments=None):
    """`chosen`: parameters by skein's names. In float64 from the gradients on."""
    matrices = {name: signs(stream_of(name), p.numel(), DIMENSION) for name, p in chosen.items()}
    all_rows = []
    for ids, targets in rows:
        loss = torch.nn.functional.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], targets[1:])
        gradients = torch.autograd.grad(loss, list(chosen.values()))
        row = torch.zeros(DIMENSION, dtype=torch.float64)
        for (name, _), gradient in zip(chosen.items(), gradients, strict=True):
            own = None if moments is None else [moments[f"{name}.{state}"].flatten().double()
                                                for state in ("exp_avg", "exp_avg_sq")]
            row += formed(gradient.flatten().double(), kind, own) @ matrices[name]
        all_rows.append(row)
    return torch.stack(all_rows)


def factorised(name, gradient, share):
    """The columns of a parameter in a factorised projection: Lᵀ G R."""
    gradient = gradient.double().reshape(gradient.shape[0], -1)
    height, width = gradient.shape
    shorter = min(math.isqrt(share), height, width)
    longer = min(share // shorter, max(height, width))
    left, right = (shorter, longer) if height <= width else (longer, shorter)
    stream = stream_of(name)
    return (signs(mix(stream, 0), height, left).T @ gradient @ signs(mix(stream, 1), width, right)).flatten()


def factorised_rows(model, rows, chosen, dimension):
    all_rows = []
    for ids, targets in rows:
        loss = torch.nn.functional.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], targets[1:])
        gradients = torch.autograd.grad(loss, list(chosen.values()))
        all_rows.append(torch.cat([factorised(name, gradient, dimension // len(chosen))
                                   for name, gradient in zip(chosen, gradients, strict=True)]))
    return torch.stack(all_rows)


def collected_rows(run_skein, tmp_path, tokenizer_folder, model, output, *words, dimension=DIMENSION):
    run_skein(["gradients", "collect", "--model", model, "--train_file", tmp_path / "chat.jsonl", "--template", "chatml",
               f"tokenizer_name_or_path={tokenizer_folder}", "--output_path", tmp_path / output,
               "--gradient_projection_dimension", dimension, "device=cpu", "dtype=float32", *words], tmp_path)
    run_skein(["gradients", "merge", tmp_path / output], tmp_path)
    rows = load_file(tmp_path / output / "gradients.safetensors")["rows"].double()
    loaded = torch.load(tmp_path / output / f"dim{rows.shape[1]}/all_unormalized.pt", weights_only=True).double()
    assert torch.equal(rows, loaded)
    return rows


def assert_rows(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    worst = ((found - expected).norm(dim=1) / expected.norm(dim=1)).max().item()
    assert worst < tolerance, worst


def trainable(model):
    return {plain_name(n): p for n, p in model.named_parameters() if "lora_" in n}


def with_gradients(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dora", [False, True])
def test_gradients_of_an_adapter(family, dora, run_skein, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    base = save_random_model(FAMILIES[family](), tmp_path / "base", 5)
    model = with_gradients(make_adapter(base, tmp_path / "adapter", use_dora=dora,
                                        target_modules=["q_proj", "v_proj", "down_proj"]))
    for kind in ("sgd",) if dora else ("sgd", "sign"):
        found = collected_rows(run_skein, tmp_path, tokenizer_folder, tmp_path / "adapter", kind, "--gradient_type", kind,
                               "--nproc-per-node", "2", "--block_samples", "3")
        expected = expected_rows(model, rows, trainable(model), kind)
        # The sign of what is next to nothing may be either.
        assert_rows(found, expected, 1e-5 if kind == "sgd" else 3e-2)


@pytest.mark.parametrize("dimension", [12, 300])
def test_the_factorised_projection(dimension, run_skein, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    base = save_random_model(FAMILIES["qwen2"](), tmp_path / "base", 5)
    adapter = with_gradients(make_adapter(base, tmp_path / "adapter", target_modules=["q_proj", "v_proj", "down_proj"]))
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    biased = {name: p for name, p in plain.named_parameters() if "q_proj" in name}  # weights and biases
    for model, folder, chosen, words in ((adapter, "adapter", trainable(adapter), []),
                                         (plain, "base", biased, ["--parameters", "q_proj"])):
        found = collected_rows(run_skein, tmp_path, tokenizer_folder, tmp_path / folder, f"of-{folder}", *words, "--projection",
                               "factorised", "--nproc-per-node", "2", "--block_samples", "3", dimension=dimension)
        facts = json.loads((tmp_path / f"of-{folder}/collection.json").read_text())
        assert facts["dimensions"] == [found.shape[1]]
        chosen = {name: chosen[name] for name in facts["parameters"]}  # the order of the columns
        assert_rows(found, factorised_rows(model, rows, chosen, dimension))


def test_adam_with_the_moments_of_a_real_checkpoint(run_skein, train, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    base = save_random_model(FAMILIES["llama"](), tmp_path / "base", 5)
    train("warm", 2, stage="sft", model_name_or_path=base, tokenizer_name_or_path=tokenizer_folder, template="chatml",
          train_file=tmp_path / "chat.jsonl", cutoff_len=192, finetuning_type="lora", lora_rank=4, lora_target="all",
          global_batch_size=4, max_steps=6, save_steps=6, learning_rate=1e-2, distributed_strategy="zero3")
    checkpoint = tmp_path / "warm/checkpoint-6"
    model = with_gradients(peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), checkpoint).eval())
    found = collected_rows(run_skein, tmp_path, tokenizer_folder, checkpoint, "adam")
    expected = expected_rows(model, rows, trainable(model), "adam", load_file(checkpoint / "optimizer.safetensors"))
    # Where a moment is next to nothing, Adam divides rounding by rounding.
    assert_rows(found, expected, 1e-4)


def train_with_trainer(base, rows, folder):
    """transformers' own loop on an adapter of twelve layers whose shapes differ, and of a norm, which does not decay.
    Returns the checkpoint and, by skein's names, the optimizer's own moments."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", modules_to_save=["norm"],
                                                       target_modules=["q_proj", "v_proj", "down_proj"]))
    samples = [{"input_ids": ids, "labels": targets} for ids, targets in rows]
    arguments = transformers.TrainingArguments(
        output_dir=folder, max_steps=4, save_steps=4, per_device_train_batch_size=1, learning_rate=1e-2, weight_decay=0.1,
        report_to="none", use_cpu=True, disable_tqdm=True)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples)
    trainer.train()
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    moments = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            plain = plain_name(name).replace(".modules_to_save", "")
            for key in ("exp_avg", "exp_avg_sq"):
                moments[f"{plain}.{key}"] = optimizer.state[parameter][key].clone()
    return folder / "checkpoint-4", moments


def test_adam_with_the_moments_of_the_trainer(run_skein, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    config = llama_config(vocab_size=330, max_position_embeddings=192, num_hidden_layers=12)
    base = save_random_model(config, tmp_path / "base", 5)
    checkpoint, moments = train_with_trainer(base, rows, tmp_path / "trainer")
    subprocess.run([sys.executable, ROOT / "scripts/hf_moments.py", checkpoint], check=True)
    made = load_file(checkpoint / "optimizer.safetensors")
    assert {name.removeprefix("base_model.model.") for name in made} == set(moments)
    for name, tensor in made.items():  # byte for byte those of the optimizer that had them
        assert torch.equal(tensor, moments[name.removeprefix("base_model.model.")]), name
    model = with_gradients(peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), checkpoint).eval())
    found = collected_rows(run_skein, tmp_path, tokenizer_folder, checkpoint, "adam", "--parameters", "lora_A,lora_B")
    assert_rows(found, expected_rows(model, rows, trainable(model), "adam", moments), 1e-4)
    # Adam's own form knows the updates from the Trainer's global_step.
    collected_rows(run_skein, tmp_path, tokenizer_folder, checkpoint, "standard", "--parameters", "lora_A,lora_B",
                   "--adam_form", "standard")


def test_all_parameters(run_skein, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    config = llama_config(vocab_size=330, max_position_embeddings=192, tie_word_embeddings=True)
    base = save_random_model(config, tmp_path / "base", 5)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    found = collected_rows(run_skein, tmp_path, tokenizer_folder, base, "full", "--parameters", "full")
    assert_rows(found, expected_rows(model, rows, dict(model.named_parameters()), "sgd"))


def test_losses_and_last_states(run_skein, tokenizer_folder, tmp_path):
    rows = write_rows(tmp_path / "chat.jsonl", tokenizer_folder, "chatml", run_skein)
    base = save_random_model(FAMILIES["qwen2"](), tmp_path / "base", 5)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    losses, states = [], []
    with torch.no_grad():
        for ids, targets in rows:
            out = model(input_ids=ids[None], output_hidden_states=True)
            losses.append(torch.nn.functional.cross_entropy(out.logits[0, :-1], targets[1:]))
            states.append(out.hidden_states[-1][0, -1])
    for kind, expected in (("loss", torch.stack(losses)[:, None]), ("reps", torch.stack(states))):
        run_skein(["gradients", "collect", "--model", base, "--train_file", tmp_path / "chat.jsonl", "--template", "chatml",
                   f"tokenizer_name_or_path={tokenizer_folder}", "--output_path", tmp_path / kind, "--info_type", kind,
                   "device=cpu", "dtype=float32"], tmp_path)
        run_skein(["gradients", "merge", tmp_path / kind], tmp_path)
        assert_rows(load_file(tmp_path / kind / "gradients.safetensors")["rows"].double(), expected.double())
