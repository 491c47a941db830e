// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The features of samples: the gradient of each in a form (gradient_form.h), projected to a few
// thousand numbers; or, factorised (factor_projection.h), the gradient itself.
//
// What a block of the model contributes is formed, brought into form and projected while backward
// is in it, then dropped: memory does not grow with the samples of a run, nor with the model's
// depth.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "skein/gradient_features/factor_projection.h"
#include "skein/gradient_features/gradient_form.h"
#include "skein/gradient_features/sample_gradients.h"

namespace skein::gradient_features {

struct FeatureOptions {
  std::vector<std::string> parameters;  // choose_parameters()
  GradientForm form{GradientType::kSgd};
  uint64_t seed = 0;  // of the projection
  int64_t dimension = 8192;
  int64_t memory = int64_t{256} << 20;  // bytes of gradients that are formed at a time
  // Of each parameter, for the factorised projection: the columns are theirs then, the form is sgd,
  // and all parameters have taps. Empty: the dense one.
  std::vector<FactorSides> sides{};
};

class FeatureRows {
 public:
  // As SampleGradients.
  FeatureRows(const model::Model& model, parallel::Sharded& sharded, const FeatureOptions& options);

  const std::vector<std::string>& untapped() const { return gradients_.untapped(); }

  // Asked between the parts of a run, with the share of it that is done. False: the rest is left
  // out, and the rows mean nothing.
  using GoesOn = std::function<bool(double done)>;
  // (documents, dimension) of a run of documents, each with a target. fp32, or float64 for float64
  // models, on the model's device. Collective as SampleGradients::compute().
  at::Tensor compute(const tensor::HostBatch& run, const GoesOn& goes_on = {});

 private:
  at::Tensor compute_dense(const tensor::HostBatch& run, const GoesOn& goes_on);
  at::Tensor compute_factors(const tensor::HostBatch& run, const GoesOn& goes_on);

  SampleGradients gradients_;
  GradientForm form_;
  int64_t dimension_;
  int64_t elements_ = 0;                     // of all parameters
  std::map<std::string, uint64_t> streams_;  // by parameter
  at::TensorOptions result_;
  std::optional<FactorProjection> factors_;  // absent: the projection is dense
};

}  // namespace skein::gradient_features
