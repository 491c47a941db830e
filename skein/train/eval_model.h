// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The loss of a model folder over a data set, without a run around it.

#include <cstdint>
#include <optional>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/plan/model_folder.h"
#include "skein/train/evaluate.h"

namespace skein::train {

struct EvalOptions {
  plan::ModelFolder model;
  // Of a run: its tokenizer; what it evaluates and how, rows (stage sft) or blocks.
  config::RunConfig run;
  int64_t batch = 8;           // rows of each rank
  std::optional<DType> dtype;  // absent: plan::inference_dtype()
};

// Collective: every rank holds the whole model and takes its part of the samples.
Evaluation evaluate_model(const EvalOptions& options, World& world);

}  // namespace skein::train
