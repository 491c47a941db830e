# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein generate`, against transformers' generate: greedy, repetition penalty, end tokens."""
import copy
import functools
import json
import os
import re
import subprocess

import pytest
import torch
import transformers

from conftest import (BUILD, decoder_config, gemma2_config, gemma3_config, gpt2_config, llama_config, phi3_config,
                      save_random_model)
from model_test import LLAMA3, LONG, YARN

CONFIGS = {
    "gpt2": lambda: gpt2_config(n_positions=128),
    "gpt2_scaled": lambda: gpt2_config(n_positions=128, scale_attn_by_inverse_layer_idx=True),
    "llama": lambda: llama_config(max_position_embeddings=128),  # two key heads for four
    "llama_tied": lambda: llama_config(max_position_embeddings=128, tie_word_embeddings=True),
    "llama_biases": lambda: llama_config(max_position_embeddings=128, attention_bias=True, mlp_bias=True),
    # Texts outgrow the positions of these files on their way.
    "llama_linear": lambda: llama_config(max_position_embeddings=48, rope_parameters={
        "rope_type": "linear", "rope_theta": 100.0, "factor": 2.5}),
    "qwen2_yarn": lambda: decoder_config("Qwen2", max_position_embeddings=32, rope_parameters=YARN | {
        "original_max_position_embeddings": 32}),
    "llama_dynamic": lambda: llama_config(max_position_embeddings=48, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}),
    "llama_llama3": lambda: llama_config(max_position_embeddings=128, rope_parameters=LLAMA3),
    "llama_yarn": lambda: llama_config(max_position_embeddings=128, rope_parameters=YARN | {"factor": 8.0}),
    # Windows are shorter than the texts.
    "mistral": lambda: decoder_config("Mistral", max_position_embeddings=128, sliding_window=16),
    "qwen2": lambda: decoder_config("Qwen2", max_position_embeddings=128, use_sliding_window=True,
                                    sliding_window=16, max_window_layers=1),
    "qwen3": lambda: decoder_config("Qwen3", max_position_embeddings=128, head_dim=14),
    "gemma2": lambda: gemma2_config(max_position_embeddings=128, sliding_window=16),
    "gemma3": lambda: gemma3_config(max_position_embeddings=128, sliding_window=16),
    "phi3": lambda: phi3_config(max_position_embeddings=128, original_max_position_embeddings=128,
                                partial_rotary_factor=0.7, hidden_size=120),
    # Texts outgrow the short factors on their way.
    "phi3_longrope": lambda: phi3_config(
        max_position_embeddings=128, original_max_position_embeddings=48, rope_parameters=LONG),
    # There the cache stays.
    "llama_longrope": lambda: llama_config(max_position_embeddings=128, head_dim=6, rope_parameters=LONG | {
        "original_max_position_embeddings": 48}),
}

# Lengths differ: in a batch the shorter ones are padded. Bytes are the tokens.
PROMPTS = ["a", "Once upon a time", "你好，世界", "The quick brown fox jumps over the lazy dog",
           "Longer than the positions of some of the files above"]

NEW_TOKENS = 64


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    return save_random_model(CONFIGS[request.param](), path, seed=11)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """For what does not depend on the family."""
    return save_random_model(CONFIGS["llama"](), tmp_path_factory.mktemp("llama"), seed=11)


def generate(*arguments, code=0):
    # One thread: these models are too small to share.
    result = subprocess.run([BUILD / "bin/skein", "generate", *map(str, arguments)],
                            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
                            capture_output=True, timeout=120)
    assert result.returncode == code, result.stderr.decode()
    return result


def generate_json(folder, prompts, *flags):
    words = [word for prompt in prompts for word in ("--prompt", prompt)]
    result = generate(folder, *words, "--json", "--device", "cpu", *flags)
    return [json.loads(line) for line in result.stdout.decode().splitlines()]


@functools.cache
def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def reference(folder, prompt, **settings):
    """The new tokens of one prompt, alone: without padding and without a mask."""
    model = copy.deepcopy(load(folder))  # dynamic RoPE goes on from the longest text that a model has seen
    tokens = torch.tensor([list(prompt.encode())])
    with torch.no_grad():
        row = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                             max_new_tokens=NEW_TOKENS, pad_token_id=0, **settings)[0]
    return row[tokens.shape[1]:].tolist()


@pytest.mark.parametrize("penalty", [None, 1.3, 0.8])
def test_greedy(folder, penalty):
    flags = [] if penalty is None else ["--repetition-penalty", penalty]
    settings = {} if penalty is None else {"repetition_penalty": penalty}
    results = generate_json(folder, PROMPTS, "--temperature", 0, "--max-new-tokens", NEW_TOKENS,
                            *flags)
    for prompt, result in zip(PROMPTS, results, strict=True):
        expected = reference(folder, prompt, **settings)
        assert result["tokens"] == expected, prompt
        assert result["prompt"] == prompt
        assert result["num_prompt_tokens"] == len(prompt.encode())
        text = bytes(t for t in expected if t < 256).decode(errors="replace")
        assert result["text"] == text
        assert result["finish_reason"] == ("stop" if expected[-1] == 256 else "length")


def test_end_tokens(folder, tmp_path):
    """An end token of generation_config.json stops its row; one or a list of them."""
    free = reference(folder, PROMPTS[1])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for name, end in (("one", free[5]), ("list", [300, free[9], free[2]])):
        model.generation_config.eos_token_id = end
        model.save_pretrained(tmp_path / name)
        results = generate_json(tmp_path / name, PROMPTS, "--temperature", 0,
                                "--max-new-tokens", NEW_TOKENS)
        for prompt, result in zip(PROMPTS, results, strict=True):
            expected = reference(tmp_path / name, prompt)
            if 256 in expected:  # ends a document of bytes, whatever the file says
                expected = expected[:expected.index(256) + 1]
            assert result["tokens"] == expected, (prompt, end)
        assert results[1]["finish_reason"] == "stop"
        assert len(results[1]["tokens"]) <= 6


def test_greedy_by_generation_config(llama, tmp_path):
    """do_sample and the penalty are read from the llama."""
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    model.generation_config.do_sample = False
    model.generation_config.repetition_penalty = 1.5
    model.save_pretrained(tmp_path)
    text = (tmp_path / "generation_config.json").read_text()
    settings = json.loads(text) | {"do_sample": False}  # a default is left out of the file
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    result = generate_json(tmp_path, PROMPTS[1:2], "--max-new-tokens", NEW_TOKENS)[0]
    assert result["tokens"] == reference(tmp_path, PROMPTS[1])


def test_a_tokenizer(llama, tmp_path):
    """Prompts and texts go through tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=257, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(PROMPTS, trainer)
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer,
                                         eos_token="<|endoftext|>").save_pretrained(tmp_path)
    result = generate_json(tmp_path, PROMPTS[2:3], "--temperature", 0, "--max-new-tokens", 20)[0]
    ids = tokenizer.encode(PROMPTS[2]).ids
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = torch.tensor([ids])
    expected = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                              max_new_tokens=20, pad_token_id=0)[0, len(ids):].tolist()
    assert result["num_prompt_tokens"] == len(ids)
    assert result["tokens"] == expected
    assert result["text"] == tokenizer.decode(expected)


def test_streamed_text_is_the_whole_text(llama):
    flags = [llama, "--prompt", PROMPTS[1], "--seed", 3, "--device", "cpu"]
    whole = generate_json(llama, PROMPTS[1:2], "--seed", 3)[0]["text"]
    assert generate(*flags).stdout.decode() == whole + "\n"
    assert generate(*flags, "--no-stream").stdout.decode() == whole + "\n"
    assert generate_json(llama, PROMPTS[1:2], "--seed", 4)[0]["text"] != whole


def test_a_text_does_not_depend_on_its_neighbours(llama):
    flags = ["--max-new-tokens", 20, "--seed", 5, "--dtype", "float64"]
    alone = generate_json(llama, PROMPTS[:1], *flags)[0]
    several = generate_json(llama, PROMPTS, *flags, "--num-return", 3, "--batch-size", 5)
    assert len(several) == 3 * len(PROMPTS)
    assert several[0]["tokens"] == alone["tokens"]
    assert several[0]["tokens"] != several[1]["tokens"]


def test_positions_end_a_text(llama):
    result = generate(llama, "--prompt", "x" * 120, "--max-new-tokens", 50, "--json")
    record = json.loads(result.stdout)
    assert record["finish_reason"] == "positions"
    assert record["num_new_tokens"] == 8
    assert "128 positions" in result.stderr.decode()


def test_a_stop_string_is_not_part_of_the_text(llama):
    free = generate_json(llama, PROMPTS[1:2])[0]["text"]
    stop = re.search("[ -~]{2}", free)[0]
    found = generate_json(llama, PROMPTS[1:2], "--stop", "never", "--stop", stop)[0]
    assert found["text"] == free[:free.index(stop)]
    assert found["finish_reason"] == "stop"


def test_prompts_of_files(llama, tmp_path):
    (tmp_path / "one.txt").write_text("two\nlines\n")
    (tmp_path / "many.jsonl").write_text('{"text": "a"}\n\n{"text": "你"}\n')
    found = generate_json(llama, ["p"], "--max-new-tokens", 1, "--prompt-file",
                          tmp_path / "one.txt", "--prompt-file", tmp_path / "many.jsonl")
    assert [f["prompt"] for f in found] == ["p", "two\nlines", "a", "你"]
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"txt": 1}\n')
    result = generate(llama, "--prompt-file", tmp_path / "bad.jsonl", code=4)
    assert "bad.jsonl:2" in result.stderr.decode()


def test_refusals(llama, tmp_path):
    (tmp_path / "empty").mkdir()
    cases = [([tmp_path / "nowhere", "--prompt", "x"], "does not exist"),
             ([tmp_path / "empty", "--prompt", "x"], "holds neither model.safetensors"),
             ([llama], "needs a prompt"),
             ([llama, "--prompt", ""], "is empty"),
             ([llama, "--prompt", "x" * 128], "leaves no room"),
             ([llama, "--promt", "x"], "did you mean '--prompt'"),
             ([llama, "--prompt", "x", "--top-p", "2"], "top_p is 2"),
             ([llama, "--prompt", "x", "--top-k", "many"], "expected an integer"),
             ([llama, "--prompt", "x", "--max-new-tokens", "0"], "at least 1"),
             ([llama, "--prompt", "x", "--dtype", "int8"], "--dtype is 'int8'"),
             ([llama, "--prompt"], "needs a value"),
             ([], "needs a model")]
    for arguments, message in cases:
        result = generate(*arguments, code=2)
        assert message in result.stderr.decode(), result.stderr.decode()
        assert result.stdout == b""
