#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
#
# Runs on a machine with an NVIDIA GPU what CI cannot: kernels against their CPU references, NCCL at
# size one, two Gloo ranks on one GPU, a training step against the CPU's, runs that resume after a stop,
# a kill and a hang, fine-tuning, preferences, generation, online stages, gradient features, and the same run as a worker of torchrun
# where that is installed. Parts run side by side: most of each is the CPU's work.
#
#   tests/gpu/run.sh [FOLDER]      FOLDER holds bin/ and tests/ (default build/cuda)
#
# LibTorch is found by RPATH, or by LD_LIBRARY_PATH when FOLDER was carried here.
set -euo pipefail
folder=$(cd "${1:-build/cuda}" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SKEIN_BUILD=$folder

kernels() {
  SKEIN_TEST_CUDA=1 "$folder/tests/ops_test" --gtest_brief=1
  SKEIN_TEST_CUDA=1 "$folder/tests/comm_test" --gtest_brief=1
}

# against_cpu SHARD: one of four. The CPU's sums in bf16, of which bounds allow for one rounding, depend on its threads.
against_cpu() {
  GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$1 OMP_NUM_THREADS=4 "$folder/tests/gpu_test" --gtest_brief=1
}

# The rank of a launcher: its child that is skein-worker.
rank_of() { pgrep -P "$1" -x skein-worker | head -1; }

same_as_whole() {
  cmp "whole/checkpoint-40/model.safetensors" "$1/checkpoint-40/model.safetensors"
  cmp "whole/checkpoint-40/optimizer.safetensors" "$1/checkpoint-40/optimizer.safetensors"
}

# disturbed FOLDER SIGNAL: the rank gets the signal after step 20, and the launcher starts it again.
disturbed() {
  "${command[@]}" output_dir="$1" --max-restarts 1 2> "$1.log" & pid=$!
  while [ ! -e "$1/checkpoint-20" ]; do sleep 0.02; kill -0 $pid; done
  kill "-$2" "$(rank_of $pid)"
  wait $pid || { cat "$1.log" >&2; return 1; }
  grep -E 'restarting|SIG' "$1.log"
  same_as_whole "$1"
}

interrupted_runs() {
  mkdir "$work/runs"
  cd "$work/runs"
  mkdir model
  cat > model/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 256,
 "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
JSON
  for i in $(seq 4000); do echo "line $i of a small corpus, and $((i * i)) is its square"; done > text.txt
  command=("$folder/bin/skein" train model_name_or_path=model train_from_scratch=true
    train_file=text.txt block_size=256 global_batch_size=32 learning_rate=1e-3 max_steps=40
    logging_steps=10 save_steps=20 full_determinism=true)
  echo "== a run in bf16, stopped and continued"
  "${command[@]}" output_dir=whole
  "${command[@]}" output_dir=stopped & pid=$!
  while [ ! -e stopped/checkpoint-20 ]; do sleep 0.02; kill -0 $pid; done
  kill -TERM $pid
  code=0; wait $pid || code=$?
  [ $code -eq 75 ] || { echo "stopped run: exit code $code, not 75" >&2; exit 1; }
  "${command[@]}" output_dir=stopped
  same_as_whole stopped
  echo "== the rank is killed; the launcher restarts it"
  disturbed killed KILL
  echo "== the rank is stopped for good; the launcher finds it and restarts it"
  disturbed halted STOP
  if command -v torchrun > /dev/null; then
    echo "== as a worker of torchrun, over NCCL"
    torchrun --no-python --nproc-per-node 1 --standalone "${command[@]}" output_dir=torchrun
    same_as_whole torchrun
  fi
  echo "== bench and doctor"
  "$folder/bin/skein" bench train model --batch 2 --tokens 128 --steps 2 --warmup 1
  "$folder/bin/skein" doctor
}

# whole_runs FILE [TEST…]: such tests mostly wait for programs to start, so that the long ones have a part each.
whole_runs() { python3 -B "$here/$1_test.py" "${@:2}"; }

names=() pids=()
# begin NAME COMMAND…
begin() {
  (
    set -euo pipefail
    SECONDS=0
    trap 'echo "$SECONDS s"' EXIT
    "${@:2}"
  ) > "$work/${#names[@]}.log" 2>&1 & pids+=($!)
  names+=("$1")
}
begin "kernels and collectives" kernels
for shard in 0 1 2 3; do begin "one GPU against the CPU, part $shard" against_cpu $shard; done
begin "runs that are cut" interrupted_runs
begin "fine-tuning, cut" whole_runs finetune Training.test_a_cut_run_goes_on_to_the_byte
begin "fine-tuning, losses" whole_runs finetune Training.test_losses_are_those_of_the_cpu
begin "fine-tuning, afterwards" whole_runs finetune Afterwards Stopping Profile
begin "gradient features" whole_runs gradients
begin "preferences, cut" whole_runs preference OnOneGpu.test_a_cut_run_goes_on_to_the_byte
begin "preferences, numbers" whole_runs preference OnOneGpu.test_losses_and_numbers_are_those_of_the_cpu
begin "preferences, references" whole_runs preference OnOneGpu.test_what_is_kept_of_a_reference_is_what_is_asked
begin "generation" whole_runs online Generation
begin "online, numbers" whole_runs online Learning.test_numbers_are_those_of_the_cpu
begin "online, cut" whole_runs online Learning.test_a_cut_run_goes_on_to_the_byte

failed=()
for i in "${!names[@]}"; do
  code=0
  wait "${pids[i]}" || code=$?
  echo "== ${names[i]}: exit code $code after $SECONDS s"
  cat "$work/$i.log"
  [ $code -eq 0 ] || failed+=("${names[i]}")
done
if ((${#failed[@]})); then
  printf 'gpu-test: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "gpu-test: passed"
