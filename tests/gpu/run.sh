#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
#
# Runs on a machine with an NVIDIA GPU what CI cannot: kernels against their CPU references, NCCL at
# size one, two Gloo ranks on one GPU, a training step against the CPU's, and a run that resumes.
#
#   tests/gpu/run.sh [FOLDER]      FOLDER holds bin/ and tests/ (default build/cuda)
#
# LibTorch is found by RPATH, or by LD_LIBRARY_PATH when FOLDER was carried here.
set -euo pipefail
folder=$(cd "${1:-build/cuda}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== kernels and collectives"
SKEIN_TEST_CUDA=1 "$folder/tests/ops_test" --gtest_brief=1
SKEIN_TEST_CUDA=1 "$folder/tests/comm_test" --gtest_brief=1
echo "== one GPU against the CPU"
"$folder/tests/gpu_test" --gtest_brief=1

echo "== a run in bf16, stopped and continued"
cd "$work"
mkdir model
cat > model/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 256,
 "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
JSON
for i in $(seq 4000); do echo "line $i of a small corpus, and $((i * i)) is its square"; done > text.txt
command=("$folder/bin/skein" train model_name_or_path=model train_from_scratch=true
  train_file=text.txt block_size=256 global_batch_size=32 learning_rate=1e-3 max_steps=40
  logging_steps=10 save_steps=20 full_determinism=true)
"${command[@]}" output_dir=whole
"${command[@]}" output_dir=stopped & pid=$!
while [ ! -e stopped/checkpoint-20 ]; do sleep 0.02; kill -0 $pid; done
kill -TERM $pid
code=0; wait $pid || code=$?
[ $code -eq 75 ] || { echo "stopped run: exit code $code, not 75" >&2; exit 1; }
"${command[@]}" output_dir=stopped
cmp whole/checkpoint-40/model.safetensors stopped/checkpoint-40/model.safetensors
cmp whole/checkpoint-40/optimizer.safetensors stopped/checkpoint-40/optimizer.safetensors
echo "gpu-test: passed"
