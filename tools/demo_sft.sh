#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# The second demo: the model of tools/demo.sh learns to answer questions, and is asked before and after.
#
#   tools/demo_sft.sh             continues where it stopped; finished, it says so and asks again
#   tools/demo_sft.sh --fresh     starts over, from the model that is there
#   tools/demo_sft.sh --quick     a few steps from the model of demo.sh --quick, without the bar, in build/demo-sft-quick
#   tools/demo_sft.sh --out DIR   another folder
#   tools/demo_sft.sh --base DIR  another model of demo.sh; made where it is not there
#
# `make demo-sft` builds first. skein is that of SKEIN_BUILD (default: build/release). Exit codes are those
# of skein (docs/exit_codes.md); 1 when exact match on held-out questions rises by less than the bar that
# recipes/demo_sft.yaml states.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skein=${SKEIN_BUILD:-build/release}/bin/skein
recipe=recipes/demo_sft.yaml
out=
base=
questions=200
fresh=()
quick=()
quick_word=()

fail() { echo "demo-sft: $1" >&2; exit "${2:-1}"; }
say() { printf '\n== %s\n' "$1"; }

while (($#)); do
  case "$1" in
    --fresh) fresh=(--fresh) ;;
    --quick)
      questions=20 quick_word=(--quick)
      quick=(max_steps=12 warmup_steps=2 logging_steps=1 eval_steps=6 save_steps=6) ;;
    --out) out=${2:?demo-sft: --out needs a folder}; shift ;;
    --base) base=${2:?demo-sft: --base needs a folder}; shift ;;
    *) fail "unknown option '$1'; known: --fresh --quick --out DIR --base DIR" 2 ;;
  esac
  shift
done
[[ -x "$skein" ]] || fail "$skein is not there: type 'make', or 'make demo-sft'" 2
suffix=${quick_word:+-quick}
out=${out:-build/demo-sft$suffix} base=${base:-build/demo$suffix}
if [[ ! -f "$base/run/model.safetensors" ]]; then
  tools/demo.sh --out "$base" "${quick_word[@]}"
fi
XDG_CACHE_HOME=$(realpath -m "$out/cache")  # prepared data stays in the demo's folder
export XDG_CACHE_HOME
export OMP_NUM_THREADS=1                    # for so small a model, more threads only wait
data=$out/data run=$out/run
if ((${#fresh[@]})); then rm -rf "$data"; fi
if [[ ! -f "$data/validation.jsonl" ]]; then  # the last file: all are whole
  say "instructions"
  python3 -B tools/make_instructions.py "$data" --questions "$questions"
fi

# ask NAME MODEL [flags]: OUT/NAME.jsonl gets an answer for every held-out question, made through the
# chat template; prints the percentage that is right to the letter.
ask() {
  local name=$1 model=$2
  shift 2
  "$skein" template render "$model" "$@" --lines --add-generation-prompt < "$data/questions.jsonl" > "$out/prompts.jsonl"
  "$skein" generate "$model" --prompt-file "$out/prompts.jsonl" --device cpu --temperature 0 --max-new-tokens 24 \
    --stop $'\n' --json > "$out/$name.jsonl"
  python3 -B - "$data/validation.jsonl" "$out/$name.jsonl" <<'PYTHON'
import json
import sys

rows, answers = ([json.loads(line) for line in open(path, encoding="utf-8")] for path in sys.argv[1:])
assert len(rows) == len(answers), (len(rows), len(answers))
right = [row["messages"][1]["content"] == answer["text"].strip() for row, answer in zip(rows, answers)]
print(f"{100 * sum(right) / len(right):.1f}")
PYTHON
}

say "before: $base/run on $data/validation.jsonl"
before=$(ask before "$base/run" --template chatml)
echo "exact match $before %"

say "training on two CPU ranks ($recipe)"
code=0
"$skein" train "$recipe" --nproc-per-node 2 model_name_or_path="$base/run" train_file="$data/train.jsonl" \
  eval_file="$data/validation.jsonl" output_dir="$run" "${quick[@]}" "${fresh[@]}" || code=$?
((code != 75)) || fail "stopped and saved; the same command continues" 75
((code == 0)) || exit "$code"

say "after: $run"
after=$(ask after "$run")
echo "exact match before $before %, after $after %"

say "a conversation"
for question in "What is 7 + 5?" "Reverse: s t o n e" "Anna has a small boat. Tom has a golden key. What does Tom have?" \
                "小明有苹果。安安有红球。小明有什么？"; do
  echo "> $question"
  "$skein" chat "$run" --device cpu --temperature 0 --max-new-tokens 24 <<< "$question"
done

say "files"
echo "the loss as a picture: $run/training_loss.svg"
echo "the model:             $run   (skein chat $run)"
if ((${#quick[@]} == 0)); then
  bar=$(sed -n 's/^# bar: exact match up by \([0-9.]*\) points.*/\1/p' "$recipe")
  awk -v before="$before" -v after="$after" -v bar="$bar" 'BEGIN { exit !(after - before >= bar) }' ||
    fail "exact match has not risen by $bar points: this model is not what the recipe promises"
fi
