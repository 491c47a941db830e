#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# The demo of data selection: of ten tasks' rows those are found that help with one, from ten examples of it; then a
# model trained on them is compared with one trained on as many random rows.
#
#   tools/demo_less.sh             collections that were begun are continued
#   tools/demo_less.sh --fresh     starts over, from the model that is there
#   tools/demo_less.sh --quick     few rows and steps from the model of demo.sh --quick, without the bars
#   tools/demo_less.sh --out DIR   another folder;  --base DIR: another model of demo.sh;  --seed N: other rows;  --task NAME: another task
#
# `make demo-less` builds first. Exit code 1 when less than 90 % of the chosen rows are of the task, or when its
# held-out loss is not 20 % below that of random rows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skein=${SKEIN_BUILD:-build/release}/bin/skein
out= base= quick= seed=1 rows=120 task=sum epochs=30

fail() { echo "demo-less: $1" >&2; exit "${2:-1}"; }
say() { printf '\n== %s\n' "$1"; }

fresh=
while (($#)); do
  case "$1" in
    --fresh) fresh=1 ;;
    --quick) quick=1 rows=8 epochs=1 ;;
    --out) out=${2:?demo-less: --out needs a folder}; shift ;;
    --base) base=${2:?demo-less: --base needs a folder}; shift ;;
    --task) task=${2:?demo-less: --task needs a name}; shift ;;
    --seed) seed=${2:?demo-less: --seed needs a number}; shift ;;
    *) fail "unknown option '$1'; known: --fresh --quick --out DIR --base DIR --seed N --task NAME" 2 ;;
  esac
  shift
done
[[ -x "$skein" ]] || fail "$skein is not there: type 'make', or 'make demo-less'" 2
out=${out:-build/demo-less${quick:+-quick}} base=${base:-build/demo${quick:+-quick}}
if [[ ! -f "$base/run/model.safetensors" ]]; then
  tools/demo.sh --out "$base" ${quick:+--quick}
fi
XDG_CACHE_HOME=$(realpath -m "$out/cache")  # prepared data stays in the demo's folder
export XDG_CACHE_HOME
export OMP_NUM_THREADS=1
if [[ -n $fresh ]]; then rm -rf "$out"/{data,warm,grads,scores,chosen,random,on_chosen,on_random}; fi
data=$out/data
python3 -B tools/make_tasks.py "$data" --rows "$rows" --seed "$seed" --task "$task"

# train NAME ROWS EPOCHS [words]: adapters beside the base, on two CPU ranks.
train() {
  "$skein" train --nproc-per-node 2 model_name_or_path="$base/run" stage=sft train_file="$2" finetuning_type=lora \
    lora_rank=16 lora_alpha=32 lora_target=all cutoff_len=64 global_batch_size=8 num_train_epochs="$3" learning_rate=3e-3 \
    lr_scheduler_type=linear device=cpu report_to=none logging_steps=1 output_dir="$out/$1" seed="$seed" "${@:4}"
}

say "warm-up: two epochs on a fifth of $data/train.jsonl"
total=$(wc -l < "$data/train.jsonl")
train warm "$data/train.jsonl" 2 max_train_samples=$((total / 5)) save_strategy=epoch

say "gradients of $total rows, and of the examples"
train_dirs=() dev_dirs=() checkpoints=()
for checkpoint in "$out"/warm/checkpoint-*; do
  step=${checkpoint##*-}
  "$skein" gradients collect --train_file "$data/train.jsonl" --model "$checkpoint" --output_path "$out/grads/train-$step" \
    --gradient_projection_dimension 1024 --max_length 64 device=cpu --nproc-per-node 2
  "$skein" gradients collect --train_file "$data/dev.jsonl" --validation --model "$checkpoint" --output_path "$out/grads/dev-$step" \
    --gradient_projection_dimension 1024 --max_length 64 device=cpu --nproc-per-node 1
  train_dirs+=("$out/grads/train-$step") dev_dirs+=("$out/grads/dev-$step") checkpoints+=("$checkpoint")
done

say "scores, and the best twentieth"
"$skein" gradients score --train "${train_dirs[@]}" --validation "${dev_dirs[@]}" --checkpoints "${checkpoints[@]}" \
  --out "$out/scores" --name train
"$skein" gradients select --scores "$out/scores/train_influence_score.safetensors" --train-files "$data/train.jsonl" --top 5% \
  --out "$out/chosen"
chosen=$out/chosen/top_p0.05.jsonl
count=$(wc -l < "$chosen")
of_task=$(grep -c "\"task\": \"$task\"" "$chosen" || true)
mkdir -p "$out/random"
shuf -n "$count" --random-source=<(yes "$seed") "$data/train.jsonl" > "$out/random/rows.jsonl"
echo "of $count chosen rows $of_task are of the task '$task', of $count random ones $(grep -c "\"task\": \"$task\"" \
  "$out/random/rows.jsonl" || true)"

say "training on the chosen rows, and on random ones"
train on_chosen "$chosen" "$epochs" save_strategy=no
train on_random "$out/random/rows.jsonl" "$epochs" save_strategy=no
loss() { "$skein" eval "$1" --dataset "$data/heldout.jsonl" --device cpu --json --cutoff-len 64 | sed 's/.*"eval_loss":\([0-9.e-]*\).*/\1/'; }
before=$(loss "$base/run") with_chosen=$(loss "$out/on_chosen") with_random=$(loss "$out/on_random")
echo "held-out loss of '$task': $before before, $with_random after random rows, $with_chosen after the chosen ones"

if [[ -z $quick ]]; then
  ((10 * of_task >= 9 * count)) || fail "less than 90 % of the chosen rows are of the task"
  awk -v chosen="$with_chosen" -v random="$with_random" 'BEGIN { exit !(chosen <= 0.8 * random) }' ||
    fail "the held-out loss is not 20 % below that of random rows"
fi
