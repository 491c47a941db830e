// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The loss of a model folder over a data set, without a run around it.

#include <cstdint>
#include <optional>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/train/evaluate.h"

namespace skein::train {

struct EvalOptions {
  // Of a run: the model's folder, with config.json and weights; what it evaluates and how, rows
  // (stage sft) or blocks.
  config::RunConfig run;
  fs::path adapter;            // PEFT's folder, computed beside the weights; empty: none
  int64_t batch = 8;           // rows of each rank
  std::optional<DType> dtype;  // absent: bfloat16 on GPUs that have it, else float32
};

// Collective: every rank holds the whole model and takes its part of the samples.
Evaluation evaluate_model(const EvalOptions& options, World& world);

}  // namespace skein::train
