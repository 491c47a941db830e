// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The parts of `skein doctor` that need LibTorch's libraries; they run in skein-worker.

#include <span>
#include <string>

namespace skein::cli {

// Prints one line of JSON: LibTorch's version, CUDA's and NCCL's, the GPUs and which pairs of them
// reach each other's memory. What is not there is null. With --no-gpus the driver, which may hang,
// is left alone.
int run_doctor_facts(std::span<const std::string> arguments);

// One rank of a trial: an all-reduce of 64 MiB, five times, its sum checked. Rank 0 writes a line
// of JSON to the file that `arguments` names.
int run_doctor_rank(std::span<const std::string> arguments);

}  // namespace skein::cli
