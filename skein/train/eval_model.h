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
  config::ModelConfig model;   // a folder with config.json and weights, and where the tokenizer is
  fs::path adapter;            // PEFT's folder, computed beside the weights; empty: none
  config::DataConfig data;     // block_size 0: what the model knows positions for, at most 1,024
  int64_t batch = 8;           // rows of each rank
  std::optional<DType> dtype;  // absent: bfloat16 on GPUs that have it, else float32
};

// Collective: every rank holds the whole model and takes its part of the samples.
Evaluation evaluate_model(const EvalOptions& options, World& world);

}  // namespace skein::train
