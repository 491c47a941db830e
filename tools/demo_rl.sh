#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# The demo of online training: the model of tools/demo_sft.sh is asked in words that it has not been taught. With GRPO it learns
# from right and wrong what they mean; with PPO from a reward model, which has learnt it from pairs of answers.
#
#   tools/demo_rl.sh             continues where it stopped; finished, it says so and asks again
#   tools/demo_rl.sh --fresh     starts over, from the model that is there
#   tools/demo_rl.sh --quick     five steps of each from the model of demo_sft.sh --quick, without the bars, in build/demo-rl-quick
#   tools/demo_rl.sh --out DIR   another folder
#   tools/demo_rl.sh --base DIR  another model of demo_sft.sh; made where it is not there, from that of demo.sh in --demo DIR
#
# `make demo-rl` builds first. skein is that of SKEIN_BUILD (default: build/release). Exit codes are those of
# skein (docs/exit_codes.md); 1 when a bar is missed that recipes/demo_{grpo,rl_rm,ppo}.yaml state.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skein=${SKEIN_BUILD:-build/release}/bin/skein
out=
base=
demo=
questions=200
fresh=()
quick=()
quick_word=()

fail() { echo "demo-rl: $1" >&2; exit "${2:-1}"; }
say() { printf '\n== %s\n' "$1"; }

while (($#)); do
  case "$1" in
    --fresh) fresh=(--fresh) ;;
    --quick)
      questions=20 quick_word=(--quick)
      quick=(max_steps=5 warmup_steps=1 logging_steps=1 eval_steps=5 save_steps=5) ;;
    --out) out=${2:?demo-rl: --out needs a folder}; shift ;;
    --base) base=${2:?demo-rl: --base needs a folder}; shift ;;
    --demo) demo=${2:?demo-rl: --demo needs a folder}; shift ;;
    *) fail "unknown option '$1'; known: --fresh --quick --out DIR --base DIR --demo DIR" 2 ;;
  esac
  shift
done
[[ -x "$skein" ]] || fail "$skein is not there: type 'make', or 'make demo-rl'" 2
suffix=${quick_word:+-quick}
out=${out:-build/demo-rl$suffix} base=${base:-build/demo-sft$suffix} demo=${demo:-build/demo$suffix}
if [[ ! -f "$base/run/model.safetensors" ]]; then
  tools/demo_sft.sh --out "$base" --base "$demo" "${quick_word[@]}"
fi
XDG_CACHE_HOME=$(realpath -m "$out/cache")  # prepared data stays in the demo's folder
export XDG_CACHE_HOME
export OMP_NUM_THREADS=1                    # for so small a model, more threads only wait
data=$out/data grpo=$out/grpo reward=$out/reward ppo=$out/ppo
if ((${#fresh[@]})); then rm -rf "$data"; fi
if [[ ! -f "$data/validation.jsonl" ]]; then  # the last file: all are whole
  say "questions"
  python3 -B tools/make_questions.py "$data" --questions "$questions"
fi

# train RECIPE OUTPUT FILES WORDS…: on two CPU ranks, with data/train$FILES.jsonl.
train() {
  local recipe=$1 output=$2 files=$3 code=0
  shift 3
  say "training on two CPU ranks ($recipe)"
  "$skein" train "$recipe" --nproc-per-node 2 model_name_or_path="$base/run" train_file="$data/train$files.jsonl" \
    eval_file="$data/validation$files.jsonl" output_dir="$output" "$@" "${quick[@]}" "${fresh[@]}" || code=$?
  ((code != 75)) || fail "stopped and saved; the same command continues" 75
  ((code == 0)) || exit "$code"
}

# ask NAME MODEL: OUT/NAME.jsonl gets an answer for every held-out question; prints the percentage that is right to the letter.
ask() {
  "$skein" template render "$2" --lines --add-generation-prompt < "$data/validation.jsonl" > "$out/prompts.jsonl"
  "$skein" generate "$2" --prompt-file "$out/prompts.jsonl" --device cpu --temperature 0 --max-new-tokens 24 --json \
    > "$out/$1.jsonl"
  python3 -B - "$data/validation.jsonl" "$out/$1.jsonl" <<'PYTHON'
import json
import sys

rows, answers = ([json.loads(line) for line in open(path, encoding="utf-8")] for path in sys.argv[1:])
assert len(rows) == len(answers), (len(rows), len(answers))
right = [row["answer"] == answer["text"].strip() for row, answer in zip(rows, answers)]
print(f"{100 * sum(right) / len(right):.1f}")
PYTHON
}

# rewards RUN: of held-out questions before and after, and how many deviations of the beginning lie between.
rewards() {
  python3 -B - "$1/trainer_log.jsonl" <<'PYTHON'
import json
import sys

records = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
first, *_, last = [record for record in records if "eval_reward" in record]
rise = last["eval_reward"] - first["eval_reward"]
deviation = first["eval_reward_std"]
print(f"{first['eval_reward']:.3f} {last['eval_reward']:.3f} {rise / deviation if deviation else 0:.2f}")
PYTHON
}

# show: some questions with all answers.
show() {
  python3 -B - "$data/validation.jsonl" "$out"/{before,grpo,ppo}.jsonl <<'PYTHON'
import json
import sys

rows = zip(*(map(json.loads, open(path, encoding="utf-8")) for path in sys.argv[1:]))
for (row, *answers), _ in zip(rows, range(4)):
    print(f"> {row['messages'][0]['content']}")
    for name, answer in zip(("before", "GRPO", "PPO"), answers):
        print(f"  {name:7} {answer['text'].strip()}")
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

say "before: $base/run on $data/validation.jsonl"
before=$(ask before "$base/run")
echo "exact answers $before %"

train recipes/demo_grpo.yaml "$grpo" ""
say "after: $grpo"
after=$(ask grpo "$grpo")
echo "exact answers before $before %, after GRPO $after %"

train recipes/demo_rl_rm.yaml "$reward" _pairs
say "the reward model on $data/validation_pairs.jsonl"
accuracy=$("$skein" eval "$reward" --dataset "$data/validation_pairs.jsonl" --device cpu --json |
  python3 -B -c 'import json, sys; print("%.1f" % (100 * json.load(sys.stdin)["accuracy"]))')
echo "held-out accuracy $accuracy %"

if ((${#quick[@]})); then quick+=(critic_warmup=1); fi
train recipes/demo_ppo.yaml "$ppo" "" reward_model="$reward"
say "after: $ppo"
read -r first last deviations <<< "$(rewards "$ppo")"
after_ppo=$(ask ppo "$ppo")
show
echo "held-out reward before $first, after PPO $last: $deviations standard deviations"
echo "exact answers before $before %, after GRPO $after %, after PPO $after_ppo %"

say "files"
echo "the rewards as pictures: $grpo/training_reward.svg, $ppo/training_reward.svg"
echo "what was tried:          $grpo/completions.jsonl, $ppo/completions.jsonl"
echo "the models:              $grpo, $ppo   (skein chat $grpo)"
check "$(awk -v before="$before" -v after="$after" 'BEGIN { printf "%.1f", after - before }')" \
  recipes/demo_grpo.yaml "exact answers up by"
check "$accuracy" recipes/demo_rl_rm.yaml "held-out accuracy of"
check "$deviations" recipes/demo_ppo.yaml "held-out reward up by"
