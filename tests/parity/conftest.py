# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Fixtures of the parity tests: the program under test, and tiny random checkpoints."""
import json
import os
import random
import subprocess
from pathlib import Path

# Before the packages are imported: nothing here may reach for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
# Threads that spin for each other make tiny models many times slower.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # as skein-worker: AMX tiles crash on some virtual machines

import numpy
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

transformers.utils.logging.disable_progress_bar()

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release"))


def pytest_configure(config):
    config.addinivalue_line("markers", "drawn(count): of the module's cases so many, drawn by SKEIN_SEED; all with SKEIN_LONG")


def pytest_collection_modifyitems(config, items):
    """Of large matrices a sample."""
    if os.environ.get("SKEIN_LONG") or any("::" in word for word in config.args):
        return
    cases = {}
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            cases.setdefault((item.path, mark.args[0]), []).append(item)
    seed = os.environ.get("SKEIN_SEED", "0")
    left_out = {id(item) for (_, count), of_module in cases.items()
                for item in random.Random(seed).sample(of_module, max(0, len(of_module) - count))}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Prepared data goes here, not into the home folder."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def skein():
    """The path of the program under test."""
    program = BUILD / "bin/skein"
    assert program.exists(), f"{program} is not built: run `make`, or set SKEIN_BUILD"
    return program


@pytest.fixture(scope="session")
def run_skein(skein):
    """run_skein(["train", "c.yaml"], cwd) → CompletedProcess with text output.

    Fails the test, with both outputs, when the exit code is not `code` (None: any).
    """

    def run(arguments, cwd, code=0, timeout=300):
        result = subprocess.run([skein, *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=timeout)
        assert code is None or result.returncode == code, (
            f"skein {' '.join(map(str, arguments))}: exit code {result.returncode}, not {code}\n"
            f"stdout:\n{result.stdout}\nstderr:\n{result.stderr}")
        return result

    return run


@pytest.fixture
def train(run_skein, tmp_path):
    """train(output, ranks=1, **keys) → the records of trainer_log.jsonl, one for every step and
    evaluation.

    The keys become the YAML file of `skein train`; every run has a folder of its own in tmp_path.
    """

    def run(output, ranks=1, **keys):
        defaults = dict(output_dir=str(tmp_path / output), device="cpu", dtype="float32",
                        logging_steps=1)
        config = tmp_path / f"{output}.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(defaults | keys, default=str))
        run_skein(["train", config, "--nproc-per-node", ranks], tmp_path)
        lines = (tmp_path / output / "trainer_log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return run


def write_tokens(path, count, vocab_size=257, seed=0):
    """Writes a file that train_file takes, random tokens; returns them."""
    tokens = numpy.random.default_rng(seed).integers(0, vocab_size, count)
    tokens.astype("<u2").tofile(path)
    return torch.from_numpy(tokens)


def train_tokenizer(folder, texts, special_tokens, settings, vocab_size=30000):
    """Writes tokenizer.json (byte-level BPE, the special tokens first) and tokenizer_config.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special_tokens, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        settings | {"tokenizer_class": "PreTrainedTokenizerFast"}))


def gpt2_config(**changes):
    values = dict(vocab_size=257, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                  bos_token_id=256, eos_token_id=256,
                  resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2Config(**(values | changes))


def llama_config(**changes):
    # Two key heads for four query heads: grouped-query attention is the common case.
    values = dict(vocab_size=257, max_position_embeddings=64, hidden_size=32, intermediate_size=88,
                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  bos_token_id=256, eos_token_id=256, tie_word_embeddings=False)
    return transformers.LlamaConfig(**(values | changes))


def decoder_config(family, **changes):
    """A tiny configuration of a family that is like Llama; sizes are odd on purpose."""
    values = dict(vocab_size=257, max_position_embeddings=64, hidden_size=36, intermediate_size=52,
                  num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
                  bos_token_id=256, eos_token_id=256, pad_token_id=None)
    return getattr(transformers, family + "Config")(**(values | changes))


def gemma2_config(**changes):
    return decoder_config("Gemma2", **(dict(head_dim=10, query_pre_attn_scalar=7, sliding_window=8,
                                            attn_logit_softcapping=3.0, final_logit_softcapping=2.0) | changes))


def gemma3_config(**changes):
    return decoder_config("Gemma3Text", **(dict(
        head_dim=10, query_pre_attn_scalar=7, sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]) | changes))


def phi3_config(**changes):
    return decoder_config("Phi3", **(dict(original_max_position_embeddings=64) | changes))


def save_random_model(config, folder, seed=0):
    """Writes a checkpoint with random weights, the same for the same seed; returns its folder.

    The scale is well above the packages' 0.02, and norms and biases are random too: a swapped or
    forgotten tensor must show in the logits.
    """
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if is_norm else 0.1 * noise)
    model.save_pretrained(folder)
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory):
    """A folder with config.json and model.safetensors; 257 tokens: bytes, then end of document."""
    return save_random_model(gpt2_config(), tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    return save_random_model(llama_config(), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session", params=["gpt2", "llama", "llama_tied"])
def tiny_model(request, tmp_path_factory):
    """Each family in turn, tied and untied."""
    config = {"gpt2": gpt2_config, "llama": llama_config,
              "llama_tied": lambda: llama_config(tie_word_embeddings=True)}[request.param]()
    return save_random_model(config, tmp_path_factory.mktemp(request.param))
