#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# get_train_lora_grads_torchrun.sh FILE MODEL OUT DIM TYPE [GPUS=8] [PORT=29500] [key=value ...]: the same as
# get_train_lora_grads_multi_gpu.sh, its ranks started by torchrun where that is on PATH.
set -euo pipefail
LAUNCHER=torchrun exec "$(dirname "$(readlink -f "$0")")/get_train_lora_grads_multi_gpu.sh" "$@"
