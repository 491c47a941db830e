// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The loss of a model folder over a data set, without a run around it.

#include <cstdint>
#include <string>

#include "skein/config/syntax/choices.h"
#include "skein/core/file.h"
#include "skein/train/evaluate.h"

namespace skein::train {

struct EvalOptions {
  fs::path model;           // folder with config.json, weights, and a tokenizer (else bytes)
  std::string dataset;      // file, comma-separated files, or a folder
  int64_t block_size = 0;   // 0: what the model knows positions for, at most 1,024
  int64_t batch = 8;        // rows of each rank
  int64_t max_samples = 0;  // 0: all
  config::DType dtype = config::DType::kAuto;
};

// Collective: every rank holds the whole model and takes its part of the samples.
Evaluation evaluate_model(const EvalOptions& options, World& world);

}  // namespace skein::train
