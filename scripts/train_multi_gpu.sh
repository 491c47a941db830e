#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# train_multi_gpu.sh CONFIG STAGE [key=value ...]: one rank on each GPU that CUDA_VISIBLE_DEVICES shows.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

if (($# < 2)); then
  echo "usage: train_multi_gpu.sh CONFIG STAGE [key=value ...]" >&2
  exit 2
fi
exec "$skein" train --config "$1" --stage "$2" "${@:3}"
