#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# The demo: makes a corpus, trains a tokenizer and a model on two CPU ranks, evaluates, generates.
#
#   tools/demo.sh             continues where it stopped; finished, it says so and shows the result
#   tools/demo.sh --fresh     starts over
#   tools/demo.sh --quick     a few steps on a small corpus, without the bar, in build/demo-quick
#   tools/demo.sh --out DIR   another folder
#
# `make demo` builds first. skein is that of SKEIN_BUILD (default: build/release). Exit codes are those
# of skein (docs/exit_codes.md); 1 when the evaluation loss is above the bar that recipes/demo.yaml
# states.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skein=${SKEIN_BUILD:-build/release}/bin/skein
recipe=recipes/demo.yaml
out=
documents=24000
new_tokens=64
fresh=()
quick=()

fail() { echo "demo: $1" >&2; exit "${2:-1}"; }
say() { printf '\n== %s\n' "$1"; }

while (($#)); do
  case "$1" in
    --fresh) fresh=(--fresh) ;;
    --quick)
      documents=400 new_tokens=8
      quick=(max_steps=12 warmup_steps=2 logging_steps=1 eval_steps=6 save_steps=6) ;;
    --out) out=${2:?demo: --out needs a folder}; shift ;;
    *) fail "unknown option '$1'; known: --fresh --quick --out DIR" 2 ;;
  esac
  shift
done
[[ -x "$skein" ]] || fail "$skein is not there: type 'make', or 'make demo'" 2
if [[ -z "$out" ]]; then
  ((${#quick[@]})) && out=build/demo-quick || out=build/demo
fi
XDG_CACHE_HOME=$(realpath -m "$out/cache")  # prepared data stays in the demo's folder
export XDG_CACHE_HOME
export OMP_NUM_THREADS=1                    # for so small a model, more threads only wait
data=$out/data model=$out/model run=$out/run
if ((${#fresh[@]})); then rm -rf "$data" "$model"; fi

# The last file of each folder says that it is whole.
if [[ ! -f "$data/validation.jsonl" ]]; then
  say "corpus"
  tools/make_corpus.py "$data" --documents "$documents"
fi
if [[ ! -f "$model/config.json" ]]; then
  say "tokenizer"
  vocab_size=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' recipes/models/llama_demo/config.json)
  "$skein" tokenizer train --input "$data/train.jsonl" --vocab-size "$vocab_size" --out "$out/tokenizer" --overwrite
  mkdir -p "$model"
  cp "$out/tokenizer"/*.json "$model/"
  cp recipes/models/llama_demo/config.json "$model/"
fi

say "training on two CPU ranks ($recipe)"
code=0
"$skein" train "$recipe" --nproc-per-node 2 model_name_or_path="$model" train_file="$data/train.jsonl" \
  eval_file="$data/validation.jsonl" output_dir="$run" "${quick[@]}" "${fresh[@]}" || code=$?
((code != 75)) || fail "stopped and saved; the same command continues" 75
((code == 0)) || exit "$code"

say "loss"
python3 - "$run/trainer_log.jsonl" <<'PYTHON'
import json
import sys

records = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
losses = {record["step"]: record["loss"] for record in records if "loss" in record}
steps = sorted(losses)
for step in sorted({*steps[::max(1, len(steps) // 8)], *steps[-1:]}):
    print(f"step {step:4}  {losses[step]:7.4f}  {'#' * round(10 * losses[step])}")
PYTHON

say "evaluation on $data/validation.jsonl"
result=$("$skein" eval "$run" --dataset "$data/validation.jsonl" --block-size 128 --device cpu --json)
loss=$(sed -n 's/.*"eval_loss":\([^,]*\),.*/\1/p' <<< "$result")
if ((${#quick[@]})); then
  echo "evaluation loss $loss"
else
  bar=$(sed -n 's/^# bar: evaluation loss below \([0-9.]*\).*/\1/p' "$recipe")
  awk -v loss="$loss" -v bar="$bar" 'BEGIN { exit !(loss < bar) }' ||
    fail "the evaluation loss is $loss, not below $bar: this model is not what the recipe promises"
  echo "evaluation loss $loss, below the bar of $bar"
fi

say "generation"
"$skein" generate "$run" --device cpu --temperature 0 --max-new-tokens $new_tokens --stop $'\n' \
  --prompt "7 + 5 =" --prompt "reverse: s t o n e =" --prompt "Once upon a time" \
  --prompt "从前有一只小猫，"

say "files"
echo "the loss as a picture: $run/training_loss.svg"
echo "TensorBoard:           tensorboard --logdir $run/runs"
echo "the model:             $run"
