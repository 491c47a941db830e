# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""finetuning_type: freeze trains the parameters that LLaMA-Factory's rules choose in transformers' model."""
import re

import pytest
import torch
import transformers
from safetensors.torch import load_file

from conftest import decoder_config, gemma2_config, gpt2_config, llama_config, phi3_config, save_random_model, write_tokens

FAMILIES = {"llama": llama_config(num_hidden_layers=4), "llama_tied": llama_config(num_hidden_layers=4,
                                                                                   tie_word_embeddings=True),
            "gpt2": gpt2_config(n_layer=4), "qwen3": decoder_config("Qwen3", num_hidden_layers=4),
            "gemma2": gemma2_config(num_hidden_layers=4), "phi3": phi3_config(num_hidden_layers=4)}
# What each family calls its MLP, its first norm, its embedding and its last norm.
WORDS = {"gpt2": ("mlp", "ln_1", "wte", "ln_f")}
OTHERS = ("mlp", "input_layernorm", "embed_tokens", "norm")
CASES = {
    "last": dict(layers=2),
    "more_than_there_are": dict(layers=9),
    "first": dict(layers=-3),
    "some_modules": dict(layers=2, modules=["{mlp}", "{first_norm}"]),
    "extra": dict(layers=1, modules=["{mlp}"], extra=["{embedding}"]),
    "extra_alone": dict(layers=0, extra=["{last_norm}"]),
    "spread": dict(layers=2, pro=True),
    "spread_over_all": dict(layers=4, pro=True, modules=["{first_norm}"]),
}


def chosen_blocks(count, layers, pro):
    """The last, the first where `layers` is negative; with `pro` the last one of each of `layers` equal groups."""
    if pro:
        assert count % layers == 0
        return [group * (count // layers) + count // layers - 1 for group in range(layers)]
    return [block for block in range(count) if (block >= count - layers if layers > 0 else block < -layers)]


def expected_names(model, layers, modules=("all",), extra=(), pro=False):
    """A parameter trains where its name holds ".BLOCK.MODULE" of one that is chosen, or the word of an extra module."""
    names = [name for name, _ in model.named_parameters()]
    inner = {re.search(r"\.\d+\.(\w+)", name)[1] for name in names if re.search(r"\.\d+\.", name)}
    outer = {name.split(".")[-2] for name in names if not re.search(r"\.\d+\.", name)}
    assert set(modules) <= inner | {"all"} and set(extra) <= outer
    parts = [f".{block}." + ("" if module == "all" else module)
             for block in chosen_blocks(model.config.num_hidden_layers, layers, pro) for module in modules]
    return {name for name in names if any(part in name for part in [*parts, *extra])}


# All cases where names differ most, and of the others what hangs on their names.
CHOSEN = [(family, case) for family in FAMILIES for case in CASES
          if family in ("llama", "gpt2") or case in ("some_modules", "extra", "extra_alone")]


@pytest.mark.parametrize("family,case", CHOSEN)
def test_the_same_parameters_train(family, case, train, tmp_path):
    base = save_random_model(FAMILIES[family], tmp_path / "base", 3)
    write_tokens(tmp_path / "tokens.bin", 256)
    mlp, first_norm, embedding, last_norm = WORDS.get(family, OTHERS)
    rules = {key: [word.format(mlp=mlp, first_norm=first_norm, embedding=embedding, last_norm=last_norm)
                   for word in value] if isinstance(value, list) else value for key, value in CASES[case].items()}
    expected = expected_names(transformers.AutoModelForCausalLM.from_pretrained(base), **rules)
    assert expected
    train("out", model_name_or_path=base, train_from_scratch=False, train_file=tmp_path / "tokens.bin", block_size=32,
          finetuning_type="freeze", freeze_trainable_layers=rules["layers"],
          freeze_trainable_modules=rules.get("modules", ["all"]), freeze_extra_modules=rules.get("extra", []),
          use_llama_pro=rules.get("pro", False), max_steps=1, learning_rate=1e-2, weight_decay=0, save_strategy="no")
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "out"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == expected
