#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# Formats the repository's C++ and CUDA files, or the files given, in place.
# With --check it only names those that are not formatted, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
if [[ "${1:-}" == --check ]]; then
  mode=(--dry-run -Werror)
  shift
fi
files=("$@")
if ((${#files[@]} == 0)); then
  # New files count too; deleted ones that git still lists do not.
  mapfile -t files < <(git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' |
    while read -r file; do [[ -f "$file" ]] && echo "$file"; done)
fi
if ((${#files[@]})); then
  clang-format-19 "${mode[@]}" "${files[@]}"
fi
