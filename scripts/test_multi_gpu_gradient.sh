#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# test_multi_gpu_gradient.sh [launch flags]: do several ranks collect what one does?
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

exec "$skein" gradients selftest "$@"
