# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What `skein gradients` writes, read by torch and safetensors; scores against torch's formula.

Collections are written here, as docs/gradient_format.md says: a second program that follows the page."""
import json

import numpy
import pytest
import safetensors
import safetensors.numpy
import torch
import xxhash


def digest(data):
    return xxhash.xxh3_128_hexdigest(data if isinstance(data, bytes) else data.encode())


def file_fact(num_rows, content):
    """Of a file of up to 16 MiB, which is one chunk."""
    return f"{num_rows}:{digest(digest(content))}"


def facts_of(num_samples, dimensions, **changes):
    facts = {"format": "skein gradients", "version": 1, "info_type": "grads", "gradient_type": "sgd", "adam_form": "less",
             "projection": "dense", "seed": 0, "dimensions": dimensions, "output_dtype": "float32",
             "projection_digest": digest("projection"), "model_digest": digest("model"), "moments_digest": "",
             "dtype": "float32", "data_digest": digest("data"), "data_files": [file_fact(num_samples, b"rows")],
             "num_samples": num_samples, "max_samples": 0, "samples_per_block": 64, "batch_tokens": 8192, "max_length": 128,
             "excess_length": "truncate", "parameters": ["w"]}
    return facts | changes


def text_of(facts):
    lines = [f' "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in facts.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def header_of(tensors, metadata):
    """As the page says: tensors by descending alignment, then name; keys of the metadata are sorted."""
    entries, position = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name, dtype, array in tensors:
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [position, position + array.nbytes]}
        position += array.nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_collection(folder, facts, rows, skipped=(), ranks=1):
    """`rows` has a row for every sample; those of `skipped` are left out."""
    folder.mkdir(parents=True)
    text = text_of(facts)
    (folder / "collection.json").write_text(text)
    size = facts["samples_per_block"]
    for block in range((len(rows) + size - 1) // size):
        everyone = range(block * size, min((block + 1) * size, len(rows)))
        samples = numpy.array([s for s in everyone if s not in skipped], dtype="<i8")
        values = rows[samples].astype("<f2" if facts["output_dtype"] == "float16" else "<f4")
        left = ",".join(f"{s}:no_target" for s in everyone if s in skipped)
        lines = ["skein gradient block 1", str(block), digest(text), left, digest(samples.tobytes()), digest(values.tobytes())]
        metadata = {"format": "pt", "kind": "skein gradient block", "version": "1", "block": str(block),
                    "collection": digest(text), "skipped": left, "digest": digest("".join(f"{line}\n" for line in lines))}
        tensors = [("samples", "I64", samples), ("rows", "F16" if values.itemsize == 2 else "F32", values)]
        place = folder if ranks == 1 else folder / f"rank_{block % ranks}"
        place.mkdir(exist_ok=True)
        (place / f"block-{block:08}.safetensors").write_bytes(
            header_of(tensors, metadata) + samples.tobytes() + values.tobytes())


def random_rows(count, columns, seed):
    return numpy.random.default_rng(seed).standard_normal((count, columns)).astype("float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_torch_reads_the_rows(run_skein, tmp_path, dtype):
    rows, skipped = random_rows(333, 96, 1), {5, 200}
    facts = facts_of(333, [32, 96], output_dtype=dtype)
    write_collection(tmp_path / "out", facts, rows, skipped, ranks=3)
    run_skein(["gradients", "merge", "out", "--parts"], tmp_path)
    expected = torch.from_numpy(rows).to(getattr(torch, dtype))
    merged = safetensors.numpy.load_file(tmp_path / "out/gradients.safetensors")
    kept = [s for s in range(333) if s not in skipped]
    assert merged["samples"].tolist() == kept
    assert (merged["rows"] == expected[kept].numpy()).all()
    expected[list(skipped)] = 0
    for columns in (32, 96):
        folder = tmp_path / f"out/dim{columns}"
        raw = torch.load(folder / "all_unormalized.pt", weights_only=True)
        assert raw.dtype == expected.dtype and torch.equal(raw, expected[:, :columns])
        unit = torch.load(folder / "all_orig.pt", weights_only=True)
        torch.testing.assert_close(unit.float(), torch.nn.functional.normalize(raw.float(), dim=1),
                                   rtol=1e-6 if dtype == "float32" else 1e-3, atol=1e-7)
        parts = [torch.load(folder / f"grads-{end}.pt", weights_only=True) for end in (160, 320, 333)]
        assert torch.equal(torch.cat(parts), raw)
        assert torch.load(folder / "all_orig.pt", weights_only=True, mmap=True).shape == raw.shape


def test_scores_are_those_of_torch(run_skein, tmp_path):
    checkpoints, weights = 3, [3e-5, 2e-5, 1e-5]
    train = [random_rows(300, 200, 10 + k) for k in range(checkpoints)]
    dev = [random_rows(17, 200, 20 + k) for k in range(checkpoints)]
    groups = [f"task{i * i % 5}" for i in range(17)]
    lines = [json.dumps({"i": i}) for i in range(300)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps({"task": group}) + "\n" for group in groups))
    train_file = file_fact(300, (tmp_path / "train.jsonl").read_bytes())
    dev_file = file_fact(17, (tmp_path / "dev.jsonl").read_bytes())
    for k in range(checkpoints):
        model = digest(f"model {k}")
        write_collection(tmp_path / f"train{k}", facts_of(300, [100, 200], model_digest=model, data_files=[train_file]),
                         train[k], {7})
        write_collection(tmp_path / f"dev{k}", facts_of(17, [100, 200], model_digest=model, data_digest=digest("dev"),
                                                        data_files=[dev_file]), dev[k])
        (tmp_path / f"checkpoint-{k}").mkdir()
        history = [{"step": step, "learning_rate": weights[(step - 1) // 10], "loss": 1.0} for step in range(1, 10 * k + 11)]
        (tmp_path / f"checkpoint-{k}/trainer_state.json").write_text(
            json.dumps({"global_step": 10 * k + 10, "log_history": history}))
    each = lambda name: [f"{name}{k}" for k in range(checkpoints)]
    run_skein(["gradients", "score", "--train", *each("train"), "--validation", *each("dev"), "--checkpoints",
               *each("checkpoint-"), "--groups", "task", "--validation-file", "dev.jsonl", "--name", "mix", "--dimension", 100],
              tmp_path)
    similarity = torch.zeros(300, 17, dtype=torch.float64)
    for k in range(checkpoints):
        unit = lambda rows: torch.nn.functional.normalize(torch.from_numpy(rows[:, :100]).double(), dim=1)
        similarity += weights[k] / sum(weights) * unit(train[k]) @ unit(dev[k]).T
    means = [similarity[:, [g == name for g in groups]].mean(1) for name in dict.fromkeys(groups)]
    expected = torch.stack(means, 1).max(1).values
    expected[7] = -float("inf")
    found = torch.load(tmp_path / "mix_influence_score.pt", weights_only=True)
    assert found.shape == (300,) and found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    ours = safetensors.numpy.load_file(tmp_path / "mix_influence_score.safetensors")
    assert (ours["scores"] == found.numpy()).all()

    run_skein(["gradients", "select", "--scores", "mix_influence_score.safetensors", "--train-files", "train.jsonl", "--top",
               "5%", "--out", "chosen"], tmp_path)
    best = torch.argsort(found, descending=True)[:15].tolist()
    assert (tmp_path / "chosen/top_p0.05.jsonl").read_text().splitlines() == [lines[i] for i in best]
    table = (tmp_path / "chosen/sorted.csv").read_text().splitlines()
    assert table[0] == "file name, index, score" and len(table) == 301
    assert table[1] == f"train.jsonl, {best[0]}, {found[best[0]]:.6f}"


def test_missing_and_flipped_rows_are_named(run_skein, tmp_path):
    write_collection(tmp_path / "out", facts_of(200, [8]), random_rows(200, 8, 3), ranks=2)
    shard = tmp_path / "out/rank_1/block-00000001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert "block 1 (samples 64 to 127)" in run_skein(["gradients", "merge", "out"], tmp_path, code=4).stderr
    shard.unlink()
    assert "block 1 (samples 64 to 127)" in run_skein(["gradients", "merge", "out"], tmp_path, code=4).stderr


def test_foreign_flags_and_words(run_skein, tmp_path):
    for verb, words in (("collect", ("--train_file", "--groups")), ("score", ("--groups",))):
        told = run_skein(["gradients", verb, "--task", "bbh"], tmp_path, code=2).stderr
        assert all(word in told for word in words), told
    assert "--top 5%" in run_skein(["gradients", "select", "--percentage", "0.05"], tmp_path, code=2).stderr
    assert "did you mean" in run_skein(["gradients", "scores"], tmp_path, code=2).stderr
