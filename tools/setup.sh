#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# Installs what tools/packages.txt lists and this machine lacks.
#
#   tools/setup.sh            what building and testing needs
#   tools/setup.sh --check    also clang-format and clang-tidy
#   tools/setup.sh --fuzz     also clang and its libFuzzer
#   tools/setup.sh --cuda     also the wheels of a CUDA build (nvcc itself comes with the CUDA toolkit)
#
# Debian/Ubuntu packages need root or a sudo that asks no password; otherwise the line to type is
# printed and the exit code is 2. Wheels go to .deps/wheels. Does nothing when nothing is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

apt_kinds='apt'
wheel_options=()
for argument in "$@"; do
  case "$argument" in
    --check) apt_kinds+='|apt-check' ;;
    --fuzz) apt_kinds+='|apt-fuzz' ;;
    --cuda) wheel_options+=(--cuda) ;;
    *) echo "setup: unknown option '$argument'; known: --check --fuzz --cuda" >&2; exit 2 ;;
  esac
done

fail() { echo "setup: $1" >&2; exit "${2:-1}"; }

mapfile -t wanted < <(awk -v kinds="^($apt_kinds)\$" '$1 ~ kinds { print $2 }' tools/packages.txt)
command -v dpkg-query > /dev/null ||
  fail "this is not Debian or Ubuntu; install the equivalents of: ${wanted[*]}" 2
# A package can be known for several architectures; one installed is enough.
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2> /dev/null |
  awk '$1 == "ii" { print $2 }') || true
mapfile -t missing < <(printf '%s\n' "${wanted[@]}" | grep -vxF -f <(echo "$installed") || true)

if ((${#missing[@]})); then
  line="apt-get install -y --no-install-recommends ${missing[*]}"
  if ((EUID == 0)); then
    root=(env)
  elif sudo -n true 2> /dev/null; then
    root=(sudo -n env)
  else
    echo "setup: missing packages need root; type:" >&2
    echo "sudo apt-get update && sudo $line" >&2
    exit 2
  fi
  echo "setup: $line"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  {
    "${root[@]}" apt-get update &&
      "${root[@]}" DEBIAN_FRONTEND=noninteractive $line
  } < /dev/null > "$log" 2>&1 ||
    fail "apt-get failed: $(grep -m 1 '^E:' "$log" || tail -n 1 "$log")"
fi

exec python3 tools/wheels.py "${wheel_options[@]}"
