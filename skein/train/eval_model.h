// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The loss of a model folder over a data set, without a run around it.

#include <cstdint>
#include <optional>
#include <string>

#include "skein/core/dtype.h"
#include "skein/core/file.h"
#include "skein/train/evaluate.h"

namespace skein::train {

struct EvalOptions {
  fs::path model;              // folder with config.json, weights, and a tokenizer (else bytes)
  std::string dataset;         // file, comma-separated files, or a folder
  int64_t block_size = 0;      // 0: what the model knows positions for, at most 1,024
  int64_t batch = 8;           // rows of each rank
  int64_t max_samples = 0;     // 0: all
  std::optional<DType> dtype;  // absent: bfloat16 on GPUs that have it, else float32
};

// Collective: every rank holds the whole model and takes its part of the samples.
Evaluation evaluate_model(const EvalOptions& options, World& world);

}  // namespace skein::train
