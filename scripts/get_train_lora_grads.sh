#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# get_train_lora_grads.sh FILE MODEL OUT DIM TYPE GPU_ID [key=value ...]: gradients of FILE's samples, on one GPU.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

if (($# < 6)); then
  echo "usage: get_train_lora_grads.sh FILE MODEL OUT DIM TYPE GPU_ID [key=value ...]" >&2
  exit 2
fi
# A number, or a name as nvidia-smi -L shows it.
if [[ ! $6 =~ ^([0-9]+|(GPU|MIG)-[0-9a-zA-Z/-]+)$ ]]; then
  echo "error: get_train_lora_grads.sh: GPU_ID is '$6', expected the number of one GPU, as 0 (keys and flags come after it)" >&2
  exit 2
fi
export CUDA_VISIBLE_DEVICES=$6
exec "$skein" gradients collect --train_file "$1" --model "$2" --output_path "$3" \
  --gradient_projection_dimension "$4" --gradient_type "$5" --nproc-per-node 1 "${@:7}"
