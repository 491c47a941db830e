#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# Compares skein with the reference packages; arguments go to pytest.
#
# The packages live in .deps/parity (5 GB, about 2 minutes), made here when requirements.txt has
# changed since. There is no way to skip: without the packages this fails. SKEIN_BUILD names the
# build to test, build/release unless set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

environment=.deps/parity
requirements=tests/parity/requirements.txt

fail() { echo "parity: $1" >&2; exit 1; }

if ! cmp -s "$requirements" "$environment/requirements.txt"; then
  echo "parity: making $environment out of $requirements"
  mkdir -p .deps
  # Built again from nothing: an upgrade in place would keep packages that nothing asks for.
  python3 -m venv --clear "$environment" ||
    fail "python3 -m venv failed; type: sudo apt-get install python3-venv"
  log=$environment/install.log
  "$environment/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
    -r "$requirements" < /dev/null > "$log" 2>&1 ||
    fail "cannot install $requirements: $(grep '^ERROR' "$log" | tail -n 1) (all of it: $log)"
  cp "$requirements" "$environment/requirements.txt"
fi

shopt -s nullglob
tests=(tests/parity/*_test.py)
((${#tests[@]})) || fail "no tests/parity/*_test.py"
exec "$environment/bin/python" -m pytest -q -rs -p no:cacheprovider "${@:-tests/parity}" < /dev/null
