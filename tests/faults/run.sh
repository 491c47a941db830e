#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
#
# What docs/fault_tolerance.md promises, tried at length: disks after a crash, broken bits, disks
# that fail, runs that are killed, asked to stop or frozen, and how soon that is noticed. About 20 minutes on two cores.
#
#   tests/faults/run.sh [BUILD]     default build/release
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build/release}" && pwd)
export SKEIN_BUILD=$build OMP_NUM_THREADS=1
failed=()

part() {
  local title=$1
  shift
  echo "== $title"
  "$@" || failed+=("$title")
}

part "disks after a crash" env SKEIN_CRASH_STATES=2000 \
  "$build/tests/checkpoint_test" --gtest_brief=1 --gtest_filter='CrashTest.*'
part "collections of gradients after a crash" env SKEIN_CRASH_STATES=1000 \
  "$build/tests/gradient_features_test" --gtest_brief=1 --gtest_filter='GradientCrashTest.*'
part "flipped bits and missing ends" env SKEIN_FLIPS=1000 \
  "$build/tests/checkpoint_test" --gtest_brief=1 --gtest_filter='FlipTest.*'
part "disks that are full, broken or read-only" \
  "$build/tests/checkpoint_test" --gtest_brief=1 --gtest_filter='FaultTest.*'
part "kill and resume" tests/faults/kill_and_resume.py
part "collections of gradients, killed and gone on with" tests/faults/kill_and_collect.py
part "asked to stop at any instant" tests/faults/stops.py
part "asked to stop where saves are slow" tests/faults/slow_saves.py
part "a rank that cannot be killed" tests/faults/frozen.py
part "how soon is it noticed" tests/faults/detection.py

if [ ${#failed[@]} -gt 0 ]; then
  printf 'faults: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "faults: passed"
