# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What a run of stage sft saves beside the weights, read by transformers: the template, and where to stop."""
import json
import subprocess

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from conftest import llama_config, save_random_model

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


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def base(tmp_path, case):
    folder = tmp_path / "base"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(
        special_tokens=SPECIAL, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    save_random_model(llama_config(vocab_size=tokenizer.get_vocab_size(), bos_token_id=0, eos_token_id=1,
                                   max_position_embeddings=256), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"} | case[1]))
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
    generation = transformers.GenerationConfig.from_pretrained(folder)
    stops = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    assert tokenizer.convert_tokens_to_ids(end) in stops
    assert tokenizer.eos_token_id in stops
    return tokenizer, stops


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
