# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# Sourced by the scripts beside it. Sets `skein`: $SKEIN, else what was built here (with CUDA first),
# else the one on PATH.
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
skein=${SKEIN:-$(command -v "$root/build/cuda/bin/skein" "$root/build/release/bin/skein" skein | head -n 1 || true)}
if [[ -z $skein ]]; then
  echo "error: no skein: run 'make' in $root, put skein on PATH, or set SKEIN=/path/to/skein" >&2
  exit 2
fi
