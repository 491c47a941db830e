#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# train_ddp.sh CONFIG [key=value ...]: DDP over all visible GPUs; with one GPU, plain training.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

exec "$skein" train "$@" --distributed_strategy ddp
