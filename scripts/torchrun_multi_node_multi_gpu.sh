#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# Type the same on every machine; what differs is in the environment:
#
#   MASTER_ADDR localhost   MASTER_PORT 29500   NODE_RANK 0   WORLD_SIZE 1 (machines, not ranks)
#   NPROC_PER_NODE 4, or as many GPUs as are visible when those are fewer; without GPUs, cores
#   MODEL_PATH              model_name_or_path
#   TRAIN_FILE_DIR          train_file_dir; TRAIN_DATA_DIR is the same
#
# Arguments go to `skein train`. Without any, the run is saved in outputs/pretraining, and on GPUs it is that of
# recipes/pretrain_offload.yaml: ZeRO-2, optimizer states in host memory, bf16, checkpointing.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

visible_devices() {
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c . || true
  else
    nvidia-smi -L 2> /dev/null | grep -c '^GPU' || true
  fi
}

gpus=$(visible_devices)
if [[ -z ${NPROC_PER_NODE:-} ]]; then
  devices=$gpus
  ((devices > 0)) || devices=$(env -u OMP_NUM_THREADS nproc)
  NPROC_PER_NODE=$((devices < 4 ? devices : 4))
fi

recipe=$(dirname "$(readlink -f "$0")")/../recipes/pretrain_offload.yaml
if ((!$#)); then
  set -- --output_dir outputs/pretraining
  ((gpus == 0)) || set -- --config "$recipe" "$@"
fi
data=${TRAIN_FILE_DIR:-${TRAIN_DATA_DIR:-}}
exec "$skein" train \
  --nproc-per-node "$NPROC_PER_NODE" \
  --nnodes "${WORLD_SIZE:-1}" \
  --node-rank "${NODE_RANK:-0}" \
  --master-addr "${MASTER_ADDR:-localhost}" \
  --master-port "${MASTER_PORT:-29500}" \
  ${MODEL_PATH:+--model_name_or_path "$MODEL_PATH"} \
  ${data:+--train_file_dir "$data"} \
  "$@"
