#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
# run_distributed.sh --config FILE [--algorithm A] [--nproc_per_node N] [--nnodes N --node_rank K
#                    --master_addr HOST --master_port PORT] [--use_torchrun] [key=value ...]
#
# `skein train` knows all of these itself. With --use_torchrun, torchrun gets the launch flags and
# starts the ranks.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/find_skein.sh"

launch=() words=() use_torchrun=
while (($#)); do
  case ${1//-/_} in
    __use_torchrun) use_torchrun=yes ;;
    __nproc_per_node=* | __nnodes=* | __node_rank=* | __master_addr=* | __master_port=*) launch+=("$1") ;;
    __nproc_per_node | __nnodes | __node_rank | __master_addr | __master_port)
      launch+=("${@:1:2}")
      (($# < 2)) || shift ;;
    *) words+=("$1") ;;
  esac
  shift
done

if [[ $use_torchrun ]] && command -v torchrun > /dev/null; then
  exec torchrun "${launch[@]}" --no-python "$skein" train "${words[@]}"
fi
[[ $use_torchrun ]] && echo "note: no torchrun on PATH; skein starts the ranks itself" >&2
exec "$skein" train "${words[@]}" "${launch[@]}"
