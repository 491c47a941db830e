#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# get_train_lora_grads_multi_gpu.sh FILE MODEL OUT DIM TYPE [GPUS=8] [PORT=29500] [key=value ...]: gradients of FILE's
# samples, on GPUS GPUs, or on all that are visible where these are fewer; without a GPU on as many CPU ranks.
# With LAUNCHER=torchrun and torchrun on PATH, that starts the ranks.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

if (($# < 5)); then
  echo "usage: $(basename "$0") FILE MODEL OUT DIM TYPE [GPUS=8] [PORT=29500] [key=value ...]" >&2
  exit 2
fi
ranks=${6:-8} port=${7:-29500}
if [[ ! $ranks =~ ^[1-9][0-9]*$ || ! $port =~ ^[1-9][0-9]*$ ]]; then
  echo "error: $(basename "$0"): GPUS is '$ranks' and PORT is '$port', expected two numbers, as 8 29500 (keys and flags come" \
    "after them)" >&2
  exit 2
fi
if [[ -n ${CUDA_VISIBLE_DEVICES+x} ]]; then
  # As CUDA reads it: a negative number ends the list, and an empty one hides all.
  visible=$(awk -F, '{ for (i = 1; i <= NF && $i !~ /^ *-/; ++i) ++count; print count + 0 }' <<< "$CUDA_VISIBLE_DEVICES")
else
  visible=$(nvidia-smi -L 2> /dev/null | wc -l || true)
fi
if ((visible > 0 && visible < ranks)); then ranks=$visible; fi
words=(gradients collect --train_file "$1" --model "$2" --output_path "$3" --gradient_projection_dimension "$4"
  --gradient_type "$5" "${@:8}")
if [[ ${LAUNCHER:-} == torchrun ]] && command -v torchrun > /dev/null; then
  exec torchrun --nproc_per_node="$ranks" --master_port="$port" --no-python "$skein" "${words[@]}"
fi
exec "$skein" "${words[@]}" --nproc-per-node "$ranks" --master-port "$port"
