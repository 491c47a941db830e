// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words of `skein gradients collect`, which its launcher and its ranks read alike.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/dtype.h"
#include "skein/core/file.h"
#include "skein/gradient_features/files/collection_facts.h"
#include "skein/plan/model_folder.h"
#include "skein/plan/tuning.h"

namespace skein::cli {

struct CollectFlags {
  config::Resolved run;  // the rows and how they are read; the device, the strategy
  fs::path given_model;  // the adapter's folder, or the model's: where moments are
  plan::ModelFolder model;
  fs::path output;
  gradient_features::InfoType info = gradient_features::InfoType::kGrads;
  gradient_features::GradientType type = gradient_features::GradientType::kSgd;
  // Why it is that, and what to type for another, where nobody has asked for one; else empty.
  std::string why_type;
  gradient_features::AdamForm adam_form = gradient_features::AdamForm::kLess;
  gradient_features::ProjectionKind projection = gradient_features::ProjectionKind::kDense;
  std::vector<int64_t> dimensions{8192};  // rising; as they were asked for
  std::vector<std::string> parameters{"adapter"};
  // Beside a model without one: LESS's, of which B is zero.
  std::optional<adapter::AdapterConfig> new_adapter;
  uint64_t seed = 0;          // of the projection
  int64_t max_samples = 0;    // 0: all
  int64_t block_samples = 0;  // 0: as many as are handy
  int64_t batch_tokens = 8192;
  int64_t memory = int64_t{256} << 20;
  bool skips_non_finite = false;
  DType output_dtype = DType::kF32;

  // The new adapter in words, of which its values follow; empty: none.
  std::string fresh() const;
};

// Of all weights that rows of this model depend on, and of the settings they are used with.
// `fresh`: an adapter that is made beside it, in words; empty: none.
std::string model_digest(const plan::ModelFolder& model, const std::string& fresh = "");

// Without launch flags. Throws UserError.
CollectFlags parse_collect_flags(std::span<const std::string> arguments);

// LESS's own flags for ranks become launch flags, or the variables of a group that was started by
// hand (--rank): returns the words that are left.
std::vector<std::string> translate_rank_flags(std::span<const std::string> arguments);

}  // namespace skein::cli
