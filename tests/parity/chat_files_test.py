# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What a run of stage sft saves beside the weights, read by transformers: the template, and where to stop."""
import json
import subprocess

import pytest
import torch
import transformers
from transformers.trainer_utils import align_special_tokens

from conftest import llama_config, save_random_model, train_tokenizer

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "2"}, {"role": "user", "content": "你好"}]
OWN = "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}" \
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

# How the run names its template, what the model's folder has, and the token that ends a turn.
CASES = {
    "named": (dict(template="llama3"), {}, "<|eot_id|>"),
    "named_instead_of_its_own": (dict(template="llama3"), {"chat_template": OWN}, "<|eot_id|>"),
    "its_own": ({}, {"chat_template": OWN}, "<|im_end|>"),
    "file": (dict(chat_template="own.jinja"), {}, "<|im_end|>"),
}


def write_tokenizer(folder, settings):
    """Of bytes and the special tokens, which come first."""
    train_tokenizer(folder, [], SPECIAL, {"bos_token": "<s>", "eos_token": "</s>"} | settings)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def base(tmp_path, case):
    folder = tmp_path / "base"
    save_random_model(llama_config(vocab_size=256 + len(SPECIAL), bos_token_id=0, eos_token_id=1,
                                   max_position_embeddings=256), folder)
    write_tokenizer(folder, case[1])
    (tmp_path / "own.jinja").write_text(OWN)
    row = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8)
    return folder


def check(folder, skein, end):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    ours = subprocess.run([skein, "template", "render", folder, "--add-generation-prompt"],
                          input=json.dumps(MESSAGES).encode(), capture_output=True, check=True).stdout.decode()
    assert theirs == ours
    assert end in theirs
    for reader in (transformers.AutoConfig, transformers.GenerationConfig):
        ends = reader.from_pretrained(folder).eos_token_id
        stops = ends if isinstance(ends, list) else [ends]
        assert tokenizer.convert_tokens_to_ids(end) in stops
        assert tokenizer.eos_token_id in stops
    return tokenizer, stops


def test_named_templates_are_carried(run_skein, train, tmp_path):
    """transformers saves them as files of a folder, and finds them in what a run, a merge and an export leave."""
    folder = tmp_path / "base"
    save_random_model(llama_config(vocab_size=300, bos_token_id=0, eos_token_id=1, max_position_embeddings=256), folder)
    write_tokenizer(folder, {})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = {"default": OWN, "rag": OWN + "{{ documents }}", "tool_use": OWN + "{{ tools }}"}
    tokenizer.save_pretrained(folder)
    assert (folder / "additional_chat_templates/rag.jinja").exists()
    row = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8)
    keys = dict(stage="sft", model_name_or_path=str(folder), train_file=str(tmp_path / "rows.jsonl"), cutoff_len=64,
                max_steps=1, global_batch_size=2)
    train("out", **keys)
    train("adapter", finetuning_type="lora", **keys)
    run_skein(["checkpoint", "verify", tmp_path / "out/checkpoint-1"], tmp_path)
    run_skein(["export", tmp_path / "out/checkpoint-1", "--out", tmp_path / "exported"], tmp_path)
    run_skein(["merge", tmp_path / "adapter", "--out", tmp_path / "merged"], tmp_path)
    for name in ("out", "out/checkpoint-1", "adapter", "adapter/checkpoint-1", "exported", "merged"):
        found = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert found.chat_template == tokenizer.chat_template, name


IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# Ids of config.json, and of generation_config.json where there is one; the tokenizer's end is </s>, 1.
MODEL_IDS = {
    "other_ids": (dict(bos_token_id=5, eos_token_id=4, pad_token_id=None), None),
    "lists": (dict(bos_token_id=0, eos_token_id=[4, 3], pad_token_id=6), dict(eos_token_id=[5, 2], pad_token_id=6)),
    "its_own": (dict(bos_token_id=0, eos_token_id=1, pad_token_id=2), dict(bos_token_id=0, eos_token_id=[1, 3])),
}


@pytest.mark.parametrize("name", MODEL_IDS)
def test_ids_follow_the_tokenizer_as_in_transformers(name, train, run_skein, tmp_path):
    """What its Trainer does before training, and saves: transformers.trainer_utils.align_special_tokens. A merged adapter is
    the same."""
    in_config, in_generation = MODEL_IDS[name]
    folder = tmp_path / "base"
    save_random_model(llama_config(vocab_size=300, max_position_embeddings=64, **in_config), folder)
    write_tokenizer(folder, {"pad_token": "<|im_start|>"})
    (folder / "generation_config.json").unlink(missing_ok=True)
    if in_generation:
        (folder / "generation_config.json").write_text(json.dumps(in_generation))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    align_special_tokens(model, transformers.AutoTokenizer.from_pretrained(folder))
    model.save_pretrained(tmp_path / "theirs")

    row = {"prompt": "Hi", "completion": "Hello"}  # no template, whose end of turn would be one more
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8)
    keys = dict(stage="sft", model_name_or_path=str(folder), train_file=str(tmp_path / "rows.jsonl"), cutoff_len=64,
                max_steps=1, global_batch_size=2)
    train("full", **keys)
    train("lora", finetuning_type="lora", **keys)
    run_skein(["merge", tmp_path / "lora", "--out", tmp_path / "merged"], tmp_path)
    for made in ("full", "merged"):
        for reader in (transformers.AutoConfig, transformers.GenerationConfig):
            ours, theirs = reader.from_pretrained(tmp_path / made), reader.from_pretrained(tmp_path / "theirs")
            for key in IDS:
                ends = [ids if isinstance(ids, list) else [ids] for ids in (getattr(ours, key), getattr(theirs, key))]
                assert ends[0] == ends[1], (made, reader, key)


def test_saved_and_exported(skein, run_skein, train, base, case, tmp_path):
    keys, _, end = case
    train("out", stage="sft", model_name_or_path=str(base), train_file=str(tmp_path / "rows.jsonl"), cutoff_len=64,
          max_steps=2, global_batch_size=2, learning_rate=1e-3,
          **{name: str(tmp_path / value) if name == "chat_template" else value for name, value in keys.items()})
    check(tmp_path / "out", skein, end)
    check(tmp_path / "out/checkpoint-2", skein, end)
    run_skein(["export", tmp_path / "out/checkpoint-2", "--out", tmp_path / "exported"], tmp_path)
    tokenizer, stops = check(tmp_path / "exported", skein, end)

    # A model that has nothing but the turn's end to say stops at once.
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.fill_(1)
        model.model.norm.weight.fill_(1)
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(end)] = 1
    prompt = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=8, do_sample=False)
    assert made.shape[1] == prompt["input_ids"].shape[1] + 1
    assert made[0, -1] in stops
