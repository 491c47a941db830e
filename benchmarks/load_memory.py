#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""How much memory does a model take while it is loaded? The peak resident size of `skein generate` with a checkpoint of 1 GB
less that with one of 1 MB, both made on the spot: one JSON row. Between 1.0 and 1.15 bytes per byte of the file: the weights
are in memory once."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release")) / "bin/skein"
VOCABULARY = 257


def shapes(hidden, layers):
    yield "model.embed_tokens.weight", [VOCABULARY, hidden]
    for layer in range(layers):
        name = f"model.layers.{layer}."
        for projection in "qkvo":
            yield f"{name}self_attn.{projection}_proj.weight", [hidden, hidden]
        for projection in ("gate", "up"):
            yield f"{name}mlp.{projection}_proj.weight", [4 * hidden, hidden]
        yield f"{name}mlp.down_proj.weight", [hidden, 4 * hidden]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}{norm}.weight", [hidden]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [VOCABULARY, hidden]


def model(folder, hidden, layers):
    """Weights of about 0.01, fp32. Returns the bytes of the file."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": hidden, "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64,
        "torch_dtype": "float32", "tie_word_embeddings": False}))
    header, done = {}, 0
    for name, shape in shapes(hidden, layers):
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [done, done + size]}
        done += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(0)
    values = struct.pack("<4096f", *(rng.gauss(0, 0.01) for _ in range(4096)))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, done, len(values)):
            file.write(values[:done - begin])
    return (folder / "model.safetensors").stat().st_size


def peak(folder):
    process = subprocess.Popen([SKEIN, "generate", folder, "--prompt", "a", "--max-new-tokens", "1", "--device", "cpu"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"load_memory.py: skein generate failed:\n{said.decode()}")
    return used.ru_maxrss * 1024


def main():
    with tempfile.TemporaryDirectory() as folder:
        small = model(Path(folder) / "small", hidden=64, layers=4)
        large = model(Path(folder) / "large", hidden=1024, layers=15)
        peaks = [min(peak(Path(folder) / name) for _ in range(3)) for name in ("small", "large")]
    grown = peaks[1] - peaks[0]
    print(json.dumps({"case": "load memory", "file_bytes": [small, large], "peak_bytes": peaks, "grown_bytes": grown,
                      "grown_per_file_byte": round(grown / large, 3)}))


if __name__ == "__main__":
    main()
