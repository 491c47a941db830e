# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Evaluation, and what a run leaves behind, against transformers and tensorboard."""
import json

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from checkpoint_test import load
from conftest import gpt2_config, llama_config, save_random_model, write_tokens
from train_test import mean_loss

BLOCK = 16
EVAL_BATCH = 2
# Five blocks, the last one short: of two ranks with two blocks a batch, one has none at the end.
NUM_EVAL_TOKENS = 4 * BLOCK + 9

STEPS = 8
# Random tokens cannot be foreseen: training soon makes other random tokens less likely.
OVERFITTING = dict(learning_rate=2e-2, lr_scheduler_type="constant", max_steps=STEPS,
                   eval_strategy="steps", eval_steps=2, save_steps=2, eval_on_start=True)


@pytest.fixture
def data(tmp_path):
    """The keys of a run that sees all its data at every step, and the blocks of its evaluation."""
    write_tokens(tmp_path / "train.bin", 4 * BLOCK, seed=3)
    tokens = write_tokens(tmp_path / "eval.bin", NUM_EVAL_TOKENS, seed=4)
    keys = dict(train_file=tmp_path / "train.bin", eval_file=tmp_path / "eval.bin",
                block_size=BLOCK, per_device_eval_batch_size=EVAL_BATCH, global_batch_size=4)
    return keys, tokens.split(BLOCK)


def loss_of(folder, blocks):
    with torch.no_grad():
        return mean_loss(load(folder), blocks).item()


def assert_same_weights(folder, expected):
    found, expected = (load_file(f / "model.safetensors") for f in (folder, expected))
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def evaluations(records):
    return {r["step"]: r["eval_loss"] for r in records if "eval_loss" in r}


def scalars(output, tag):
    accumulator = EventAccumulator(str(output / "runs"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {event.step: event.value for event in accumulator.Scalars(tag)}


def evaluate(run_skein, model, dataset, cwd, *flags):
    """What `skein eval` prints."""
    result = run_skein(["eval", model, "--dataset", dataset, "--dtype", "float32", "--device", "cpu",
                        "--json", *flags], cwd)
    return json.loads(result.stdout)


@pytest.mark.parametrize("batch", [1, 8])
def test_eval_command(tiny_model, data, batch, run_skein, tmp_path):
    _, blocks = data
    found = evaluate(run_skein, tiny_model, tmp_path / "eval.bin", tmp_path, "--block-size", BLOCK,
                     "--batch-size", batch)
    loss = loss_of(tiny_model, blocks)
    assert found["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert found["perplexity"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-4)
    assert found["num_samples"] == len(blocks)
    assert found["num_tokens"] == NUM_EVAL_TOKENS - len(blocks)


def test_eval_command_takes_the_first_samples(tiny_gpt2, data, run_skein, tmp_path):
    _, blocks = data
    found = evaluate(run_skein, tiny_gpt2, tmp_path / "eval.bin", tmp_path, "--block-size", BLOCK,
                     "--max-samples", 3)
    assert found["eval_loss"] == pytest.approx(loss_of(tiny_gpt2, blocks[:3]), rel=1e-5)


@pytest.mark.parametrize("ranks,strategy,model", [(1, "ddp", "tiny_gpt2"), (2, "ddp", "tiny_llama"),
                                                  (1, "zero3", "tiny_llama"),
                                                  (2, "zero3", "tiny_gpt2")])
def test_evaluation_in_training(ranks, strategy, model, data, train, tmp_path, request):
    """Every evaluation; the best of them; the files that say so."""
    keys, blocks = data
    folder = request.getfixturevalue(model)
    output = tmp_path / "out"
    records = train("out", ranks, model_name_or_path=folder, distributed_strategy=strategy,
                    load_best_model_at_end=True, save_total_limit=1, **OVERFITTING, **keys)
    found = evaluations(records)
    assert list(found) == [0, 2, 4, 6, 8]
    assert found[0] == pytest.approx(loss_of(folder, blocks), rel=1e-5)
    assert found[8] == pytest.approx(loss_of(output / "checkpoint-8", blocks), rel=1e-5)
    assert found[8] > 1.01 * min(found.values())

    # Weights before the first step are nobody's checkpoint.
    best = min((step for step in found if step), key=found.get)
    assert found[best] == pytest.approx(loss_of(output, blocks), rel=1e-5)
    assert_same_weights(output, output / f"checkpoint-{best}")
    state = transformers.TrainerState.load_from_json(output / "trainer_state.json")
    assert (state.global_step, state.best_global_step) == (STEPS, best)
    assert state.best_metric == found[best]
    assert state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    assert state.log_history == records

    training = {r["step"]: r["loss"] for r in records if "loss" in r}
    assert list(training) == list(range(1, STEPS + 1))
    assert scalars(output, "train/loss") == pytest.approx(training, rel=1e-6)
    assert scalars(output, "eval/loss") == pytest.approx(found, rel=1e-6)


def test_best_is_remembered(tiny_gpt2, data, train, run_skein, tmp_path):
    """A run that was continued after its best evaluation still ends with that model."""
    keys, _ = data
    keys = keys | {"model_name_or_path": tiny_gpt2, "load_best_model_at_end": True,
                   "save_total_limit": 1}
    whole = evaluations(train("whole", **OVERFITTING, **keys))
    best = min((step for step in whole if step), key=whole.get)
    assert best < STEPS - 4
    train("out", **OVERFITTING | {"max_steps": STEPS - 4}, **keys)
    records = train("out", **OVERFITTING, **keys)
    assert evaluations(records) == pytest.approx(whole, rel=1e-6)
    assert_same_weights(tmp_path / "out", tmp_path / f"whole/checkpoint-{best}")


def test_early_stopping_as_transformers(tiny_gpt2, data, train, tmp_path):
    """The callback itself, fed with our losses, stops at the evaluation at which we stop."""
    keys, _ = data
    changes = {"max_steps": 30, "eval_steps": 1, "save_steps": 1}
    for patience, threshold in ((1, 0.0), (3, 0.0), (3, 0.05)):
        output = f"out_{patience}_{threshold}"
        found = evaluations(train(output, model_name_or_path=tiny_gpt2, early_stopping_patience=patience,
                                  early_stopping_threshold=threshold, **OVERFITTING | changes, **keys))
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path / "unused", eval_strategy="steps", eval_steps=1, use_cpu=True,
            metric_for_best_model="eval_loss", greater_is_better=False)
        state, control = transformers.TrainerState(), transformers.TrainerControl()
        callback = transformers.EarlyStoppingCallback(patience, threshold)
        stopped = None
        for step, loss in found.items():
            if step == 0:
                continue
            callback.on_evaluate(arguments, state, control, {"eval_loss": loss})
            if state.best_metric is None or loss < state.best_metric:
                state.best_metric = loss
            if control.should_training_stop:
                stopped = step
                break
        assert stopped == max(found) < 30
        saved = transformers.TrainerState.load_from_json(tmp_path / output / "trainer_state.json")
        assert saved.global_step == stopped


@pytest.mark.parametrize("ranks,strategy", [(1, "ddp"), (2, "zero3")])
def test_max_shard_size(ranks, strategy, tiny_llama, data, train, tmp_path):
    """Saves are split by transformers' rule, tensors in our order, and it loads them."""
    keys, _ = data
    keys = keys | {"model_name_or_path": tiny_llama, "max_steps": 2, "save_steps": 1,
                   "distributed_strategy": strategy}
    train("whole", ranks, **keys)
    train("split", ranks, max_shard_size="30kB", **keys)
    assert not (tmp_path / "split/model.safetensors").exists()
    for folder in ("split", "split/checkpoint-1", "split/checkpoint-2"):
        model = load(tmp_path / folder)
        index = json.loads((tmp_path / folder / "model.safetensors.index.json").read_text())
        model.save_pretrained(tmp_path / "theirs", max_shard_size="30kB")
        expected = json.loads((tmp_path / "theirs/model.safetensors.index.json").read_text())
        assert set(index["weight_map"]) == set(expected["weight_map"])
        assert index["metadata"]["total_size"] == expected["metadata"]["total_size"]
        for name in set(index["weight_map"].values()):
            tensors = load_file(tmp_path / folder / name)
            assert len(tensors) == 1 or sum(t.nbytes for t in tensors.values()) <= 30_000
        whole = load(tmp_path / folder.replace("split", "whole")).state_dict()
        assert all(torch.equal(whole[name], tensor) for name, tensor in model.state_dict().items())
    # Continued from files of another size.
    train("split", ranks, max_shard_size="1GB", **keys | {"max_steps": 3})
    train("whole", ranks, **keys | {"max_steps": 3})
    assert_same_weights(tmp_path / "split", tmp_path / "whole")


def test_last_model_unless_asked(tiny_gpt2, data, train, tmp_path):
    keys, blocks = data
    records = train("out", model_name_or_path=tiny_gpt2, save_only_model=True, **OVERFITTING, **keys)
    found = evaluations(records)
    assert min(found, key=found.get) != STEPS
    assert loss_of(tmp_path / "out", blocks) == pytest.approx(found[STEPS], rel=1e-5)


def test_save_only_model(tiny_gpt2, data, train, run_skein, tmp_path):
    keys, blocks = data
    output = tmp_path / "out"
    keys = keys | {"model_name_or_path": tiny_gpt2, "eval_strategy": "epoch"}
    found = evaluations(train("out", save_only_model=True, max_steps=2, save_steps=1, **keys))
    for step in (1, 2):
        files = {path.name for path in (output / f"checkpoint-{step}").iterdir()}
        assert "model.safetensors" in files
        assert not any("optimizer" in name for name in files), files
        loss = loss_of(output / f"checkpoint-{step}", blocks)
        assert loss == pytest.approx(found[step], rel=1e-5)
    refused = run_skein(["train", tmp_path / "out.yaml", "max_steps=4"], tmp_path, code=None)
    assert refused.returncode != 0
    assert "save_only_model" in refused.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_label_smoothing_in_evaluations(ranks, tiny_model, data, train):
    """The Trainer smooths these losses too; `skein eval` does not know of it."""
    keys, blocks = data
    records = train("out", ranks, model_name_or_path=tiny_model, learning_rate=0, max_steps=1,
                    eval_strategy="steps", eval_steps=1, label_smoothing_factor=0.2, **keys)
    with torch.no_grad():
        expected = mean_loss(load(tiny_model), blocks, smoothing=0.2).item()
    assert evaluations(records)[1] == pytest.approx(expected, rel=1e-5)
    assert abs(expected - loss_of(tiny_model, blocks)) > 1e-4


def write_older_config(folder):
    """As transformers 4 wrote it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"], config["rope_scaling"] = rope["rope_theta"], None
    path.write_text(json.dumps(config, indent=2))


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3"])
def test_rope_scaling(kind, generation, train, run_skein, tmp_path):
    """Trained, saved and loaded with the same positions, which are those of LLaMA-Factory's rule."""
    source = save_random_model(llama_config(max_position_embeddings=24, initializer_range=0.1), tmp_path / "source")
    if generation == 4:
        write_older_config(source)
    blocks = write_tokens(tmp_path / "train.bin", 2 * 40, seed=7).split(40)
    keys = dict(model_name_or_path=source, train_file=tmp_path / "train.bin", block_size=40, global_batch_size=2,
                learning_rate=0, rope_scaling=kind, save_steps=1)
    records = train("out", max_steps=1, **keys)
    saved = json.loads((tmp_path / "out/config.json").read_text())
    assert ("rope_parameters" in saved) == (generation == 5)
    config = load(tmp_path / "out").config
    assert config.rope_parameters["rope_type"] == kind
    assert config.rope_parameters["factor"] == 2  # ceil(40 / 24)
    assert config.max_position_embeddings == (24 if kind == "dynamic" else 48)
    assert records[0]["loss"] == pytest.approx(loss_of(tmp_path / "out", blocks), rel=1e-5)
    assert abs(loss_of(tmp_path / "out", blocks) - loss_of(source, blocks)) > 1e-5
    # It goes on with the same positions alone.
    train("out", max_steps=2, **keys)
    refused = run_skein(["train", tmp_path / "out.yaml", "max_steps=3", "rope_scaling=none"], tmp_path, code=None)
    assert refused.returncode != 0
    assert ("rope_parameters" if generation == 5 else "rope_scaling") in refused.stderr


def test_held_out_blocks(tiny_gpt2, data, train, run_skein, tmp_path):
    """With no evaluation file: some of the training blocks, each used for one of the two."""
    tokens = write_tokens(tmp_path / "train.bin", 10 * BLOCK, seed=5).split(BLOCK)
    keys = data[0] | {"global_batch_size": 1, "learning_rate": 0, "eval_file": "",
                      "validation_split_percentage": 20, "model_name_or_path": tiny_gpt2}
    records = train("out", num_train_epochs=1, eval_strategy="epoch", **keys)
    losses = [loss_of(tiny_gpt2, [block]) for block in tokens]
    trained = [r["loss"] for r in records if "loss" in r]
    assert len(trained) == 8
    used = {min(range(10), key=lambda i: abs(losses[i] - loss)) for loss in trained}
    assert len(used) == 8
    held_out = [tokens[i] for i in range(10) if i not in used]
    assert evaluations(records)[8] == pytest.approx(loss_of(tiny_gpt2, held_out), rel=1e-5)


TEXT = "the quick brown fox jumps over the lazy dog; 从前有座山, and the dog sleeps.\n" * 12


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    """A model of 300 tokens with the files that save_pretrained writes for its tokenizer."""
    folder = tmp_path_factory.mktemp("with_tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer,
                                                   eos_token="<|endoftext|>")
    save_random_model(gpt2_config(vocab_size=300, bos_token_id=0, eos_token_id=0), folder)
    wrapped.save_pretrained(folder)
    return folder


def test_tokenizer_is_carried_along(tokenizer_folder, train, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    train("out", model_name_or_path=tokenizer_folder, train_file=tmp_path / "text.txt", block_size=32,
          max_steps=2, save_steps=1)
    theirs = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    for folder in (tmp_path / "out", tmp_path / "out/checkpoint-1"):
        load(folder)
        ours = transformers.AutoTokenizer.from_pretrained(folder)
        assert ours(TEXT).input_ids == theirs(TEXT).input_ids
        assert (ours.eos_token_id, len(ours)) == (0, 300)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert (folder / name).read_bytes() == (tokenizer_folder / name).read_bytes()


@pytest.mark.parametrize("name", [".", "tokenizer.json"])
def test_tokenizer_from_elsewhere_is_carried_along(tokenizer_folder, name, train, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    source = save_random_model(gpt2_config(vocab_size=300, bos_token_id=0, eos_token_id=0),
                               tmp_path / "source")
    train("out", model_name_or_path=source, tokenizer_name_or_path=tokenizer_folder / name,
          train_file=tmp_path / "text.txt", block_size=32, max_steps=1)
    ours = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    assert ours(TEXT).input_ids == theirs(TEXT).input_ids
    assert ours.eos_token == "<|endoftext|>"


NEW_TOKENS = ["<|start|>", "<|\u7ed3\u675f|>", "the", "\\quoted\""]


def model_of_300(folder, tokenizer_folder, vocab_size, tied):
    """Trained on the spot; the tokenizer knows 300 tokens, the model may have rows to spare."""
    config = llama_config(vocab_size=vocab_size, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0)
    save_random_model(config, folder)
    transformers.AutoTokenizer.from_pretrained(tokenizer_folder).save_pretrained(folder)
    return folder


def assert_same_tokenizer(found, expected):
    ours, theirs = (transformers.AutoTokenizer.from_pretrained(f) for f in (found, expected))
    text = TEXT[:200] + "".join(NEW_TOKENS) + " \u7ed3\u675f <|start|>the end"
    assert ours.convert_tokens_to_ids(NEW_TOKENS) == theirs.convert_tokens_to_ids(NEW_TOKENS)
    assert ours(text).input_ids == theirs(text).input_ids
    assert (len(ours), ours.eos_token_id) == (len(theirs), theirs.eos_token_id)
    assert ours.decode(ours(text).input_ids, skip_special_tokens=True) == theirs.decode(
        theirs(text).input_ids, skip_special_tokens=True)
    return theirs


@pytest.mark.parametrize("ranks,strategy,tied,dtype", [(1, "ddp", True, "float32"), (2, "ddp", False, "bfloat16"),
                                                       (2, "zero2", True, "bfloat16"), (3, "zero3", False, "float32")])
def test_new_special_tokens(ranks, strategy, tied, dtype, tokenizer_folder, train, run_skein, tmp_path):
    """Tokenizer, rows and config.json as transformers would have made them; also continued."""
    source = model_of_300(tmp_path / "source", tokenizer_folder, 300, tied)
    (tmp_path / "text.txt").write_text(TEXT + "<|start|>the fox<|\u7ed3\u675f|>" * 20)
    keys = dict(model_name_or_path=source, train_file=tmp_path / "text.txt", block_size=32, learning_rate=0,
                dtype=dtype, distributed_strategy=strategy, new_special_tokens=NEW_TOKENS, resize_vocab=True,
                save_steps=1, weight_decay=0, global_batch_size=6)
    first = train("out", ranks, max_steps=1, **keys)
    theirs = transformers.AutoTokenizer.from_pretrained(source)
    theirs.add_tokens(NEW_TOKENS, special_tokens=True)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_tokenizer(tmp_path / "out", tmp_path / "theirs")
    old, new = load_file(source / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert set(old) == set(new)
    rows = len(theirs)
    assert rows >= 303
    grown = {name for name in old if old[name].shape != new[name].shape}
    assert grown == {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    for name in grown:
        assert new[name].shape == (rows, 32)
        assert torch.equal(new[name][:300], old[name].to(new[name].dtype))
        mean = old[name].mean(0)
        tolerance = dict(atol=1e-7, rtol=1e-6) if dtype == "float32" else dict(atol=1e-4, rtol=8e-3)
        assert torch.allclose(new[name][300:].float(), mean.expand(rows - 300, -1), **tolerance)
    model = load(tmp_path / "out")
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == rows
    # Continued, and what was left out is missed.
    train("out", ranks, max_steps=2, **keys)
    assert_same_weights(tmp_path / "out", tmp_path / "out/checkpoint-1")
    refused = run_skein(["train", tmp_path / "out.yaml", "max_steps=3", "new_special_tokens=none"], tmp_path, code=None)
    assert refused.returncode != 0 and "vocab_size" in refused.stderr
    # What was saved has them: nothing grows any more.
    again = train("again", ranks, max_steps=1, **keys | {"model_name_or_path": tmp_path / "out"})
    assert again[0]["loss"] == pytest.approx(first[0]["loss"], rel=1e-6)
    assert_same_weights(tmp_path / "again", tmp_path / "out")


def test_spare_rows_are_used_first(tokenizer_folder, train, run_skein, tmp_path):
    source = model_of_300(tmp_path / "source", tokenizer_folder, 320, tied=True)
    (tmp_path / "text.txt").write_text(TEXT)
    keys = dict(model_name_or_path=source, train_file=tmp_path / "text.txt", block_size=32, learning_rate=0, max_steps=1)
    for resize in (False, True):
        train(f"out_{resize}", new_special_tokens=NEW_TOKENS, resize_vocab=resize, **keys)
        assert_same_weights(tmp_path / f"out_{resize}", source)
    many = [f"<{i}>" for i in range(21)]
    (tmp_path / "many.yaml").write_text(json.dumps(keys | {"new_special_tokens": many, "output_dir": "many"}, default=str))
    refused = run_skein(["train", tmp_path / "many.yaml"], tmp_path, code=2)
    assert "resize_vocab=true" in refused.stderr and "rows for 320" in refused.stderr


def test_eval_command_on_text(tokenizer_folder, run_skein, tmp_path):
    """A text is its tokens and one end of document."""
    (tmp_path / "text.txt").write_text(TEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    tokens = torch.tensor([*tokenizer(TEXT).input_ids, tokenizer.eos_token_id])
    found = evaluate(run_skein, tokenizer_folder, tmp_path / "text.txt", tmp_path, "--block-size", 32)
    loss = loss_of(tokenizer_folder, tokens.split(32))
    assert found["eval_loss"] == pytest.approx(loss, rel=1e-5)
