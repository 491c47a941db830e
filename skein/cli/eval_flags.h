// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words of `skein eval`, which its launcher and its ranks read alike.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/data/source_files.h"
#include "skein/plan/model_folder.h"

namespace skein::cli {

struct EvalFlags {
  // The data set is the evaluation file of a run without training data; of rows (stage sft) it is
  // measured what training trains on.
  config::RunConfig run;
  plan::ModelFolder model;
  int64_t batch_size = 8;
  std::optional<DType> dtype;  // absent: auto
  config::Device device = config::Device::kAuto;
  bool json = false;
};

// Without launch flags. Throws UserError.
EvalFlags parse_eval_flags(std::span<const std::string> arguments);

// The files of the data set. Throws UserError, whose words name --dataset.
data::Sources eval_sources(const config::RunConfig& run);

// Refuses what no rank could evaluate: a data set that is not there, text without the model's
// tokenizer. Throws UserError.
void check_eval(const EvalFlags& flags);

}  // namespace skein::cli
