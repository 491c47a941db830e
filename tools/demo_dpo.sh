#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# The demo of preferences: a reward model and DPO, from the model of tools/demo_sft.sh and pairs of answers of which one has
# the preferred style. The model is asked before and after.
#
#   tools/demo_dpo.sh             continues where it stopped; finished, it says so and asks again
#   tools/demo_dpo.sh --fresh     starts over, from the model that is there
#   tools/demo_dpo.sh --quick     a few steps from the model of demo_sft.sh --quick, without the bars, in build/demo-dpo-quick
#   tools/demo_dpo.sh --out DIR   another folder
#   tools/demo_dpo.sh --base DIR  another model of demo_sft.sh; made where it is not there, from that of demo.sh in --demo DIR
#
# `make demo-dpo` builds first. skein is that of SKEIN_BUILD (default: build/release). Exit codes are those
# of skein (docs/exit_codes.md); 1 when a bar is missed that recipes/demo_rm.yaml or recipes/demo_dpo.yaml states.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skein=${SKEIN_BUILD:-build/release}/bin/skein
out=
base=
demo=
pairs=1200
questions=200
fresh=()
quick=()
quick_word=()

fail() { echo "demo-dpo: $1" >&2; exit "${2:-1}"; }
say() { printf '\n== %s\n' "$1"; }

while (($#)); do
  case "$1" in
    --fresh) fresh=(--fresh) ;;
    --quick)
      pairs=160 questions=20 quick_word=(--quick)
      quick=(max_steps=12 warmup_steps=2 logging_steps=1 eval_steps=6 save_steps=6) ;;
    --out) out=${2:?demo-dpo: --out needs a folder}; shift ;;
    --base) base=${2:?demo-dpo: --base needs a folder}; shift ;;
    --demo) demo=${2:?demo-dpo: --demo needs a folder}; shift ;;
    *) fail "unknown option '$1'; known: --fresh --quick --out DIR --base DIR --demo DIR" 2 ;;
  esac
  shift
done
[[ -x "$skein" ]] || fail "$skein is not there: type 'make', or 'make demo-dpo'" 2
suffix=${quick_word:+-quick}
out=${out:-build/demo-dpo$suffix} base=${base:-build/demo-sft$suffix} demo=${demo:-build/demo$suffix}
if [[ ! -f "$base/run/model.safetensors" ]]; then
  tools/demo_sft.sh --out "$base" --base "$demo" "${quick_word[@]}"
fi
XDG_CACHE_HOME=$(realpath -m "$out/cache")  # prepared data stays in the demo's folder
export XDG_CACHE_HOME
export OMP_NUM_THREADS=1                    # for so small a model, more threads only wait
data=$out/data reward=$out/reward run=$out/run
if ((${#fresh[@]})); then rm -rf "$data"; fi
if [[ ! -f "$data/validation.jsonl" ]]; then  # the last file: all are whole
  say "pairs"
  python3 -B tools/make_preferences.py "$data" --pairs "$pairs" --questions "$questions"
fi

# train RECIPE MODEL: on two CPU ranks.
train() {
  local code=0
  say "training on two CPU ranks ($1)"
  "$skein" train "$1" --nproc-per-node 2 model_name_or_path="$base/run" train_file="$data/train.jsonl" \
    eval_file="$data/validation.jsonl" output_dir="$2" "${quick[@]}" "${fresh[@]}" || code=$?
  ((code != 75)) || fail "stopped and saved; the same command continues" 75
  ((code == 0)) || exit "$code"
}

# ask NAME MODEL: OUT/NAME.jsonl gets an answer for every held-out question; prints the percentage in the
# preferred style, and of those that say what is right.
ask() {
  "$skein" template render "$2" --lines --add-generation-prompt < "$data/questions.jsonl" > "$out/prompts.jsonl"
  "$skein" generate "$2" --prompt-file "$out/prompts.jsonl" --device cpu --temperature 0 --max-new-tokens 32 \
    --stop $'\n' --json > "$out/$1.jsonl"
  PYTHONPATH=tools python3 -B - "$data/validation.jsonl" "$out/$1.jsonl" <<'PYTHON'
import json
import sys

from make_preferences import answer_in, is_preferred

pairs, answers = ([json.loads(line) for line in open(path, encoding="utf-8")] for path in sys.argv[1:])
assert len(pairs) == len(answers), (len(pairs), len(answers))
styled = [is_preferred(answer["text"]) for answer in answers]
right = [answer_in(answer["text"]) == answer_in(pair["chosen"][0]["content"]) for pair, answer in zip(pairs, answers)]
print(*(f"{100 * sum(values) / len(values):.1f}" for values in (styled, right)))
PYTHON
}

# show: some questions with the answers before and after.
show() {
  python3 -B - "$data/validation.jsonl" "$out/before.jsonl" "$out/after.jsonl" <<'PYTHON'
import json
import sys

rows = zip(*(map(json.loads, open(path, encoding="utf-8")) for path in sys.argv[1:]))
for (pair, before, after), _ in zip(rows, range(4)):
    print(f"> {pair['prompt'][0]['content']}\n  before  {before['text'].strip()}\n  after   {after['text'].strip()}")
PYTHON
}

# check VALUE RECIPE WORDS: fails where VALUE is below the bar that the recipe states in these words; --quick makes too
# few steps for that.
check() {
  ((${#quick[@]} == 0)) || return 0
  local bar
  bar=$(sed -n "s/^# bar: $3 \([0-9.]*\).*/\1/p" "$2")
  awk -v value="$1" -v bar="$bar" 'BEGIN { exit !(bar != "" && value + 0 >= bar + 0) }' ||
    fail "$3 $1, not $bar: this model is not what $2 promises"
}

train recipes/demo_rm.yaml "$reward"
say "the reward model on $data/validation.jsonl"
accuracy=$("$skein" eval "$reward" --dataset "$data/validation.jsonl" --device cpu --json |
  python3 -B -c 'import json, sys; print("%.1f" % (100 * json.load(sys.stdin)["accuracy"]))')
echo "held-out accuracy $accuracy %"
check "$accuracy" recipes/demo_rm.yaml "held-out accuracy of"

say "before: $base/run on $data/questions.jsonl"
before=$(ask before "$base/run")
echo "preferred style ${before% *} %, right ${before#* } %"

train recipes/demo_dpo.yaml "$run"
accuracies=$(python3 -B - "$run/trainer_log.jsonl" <<'PYTHON'
import json
import sys

records = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
found = [record["eval_rewards/accuracies"] for record in records if "eval_rewards/accuracies" in record]
print(f"{100 * found[-1]:.1f}")
PYTHON
)
say "after: $run"
after=$(ask after "$run")
show
echo "held-out reward accuracy $accuracies %"
echo "preferred style before ${before% *} %, after ${after% *} %; right before ${before#* } %, after ${after#* } %"

say "files"
echo "the losses as pictures: $reward/training_loss.svg, $run/training_loss.svg"
echo "the reward model:       $reward"
echo "the model:              $run   (skein chat $run)"
rise=$(awk -v before="${before% *}" -v after="${after% *}" 'BEGIN { printf "%.1f", after - before }')
check "$accuracies" recipes/demo_dpo.yaml "held-out reward accuracy of"
check "$rise" recipes/demo_dpo.yaml "preferred style up by"
