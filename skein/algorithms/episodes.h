// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What models say of the tokens of sampled completions (tensor::Episodes): n targets, A
// completions.

#include <ATen/core/Tensor.h>

#include "skein/model/model.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/units.h"

namespace skein::algorithms {

// (n) each: log p in float64, what else `wish` asks in the model's own type. The one forward pass
// from which losses and looks are made, so that a ratio to what was looked at is exactly 1 while
// the weights are the same.
model::TokenNumbers target_numbers(const model::Model& model, const tensor::Batch& batch,
                                   const tensor::StepKey& key, tensor::Units& units,
                                   const model::HeadWish& wish);

// log p of each target at a temperature, (n) float64, without gradients. `key.training` is off
// where completions are sampled and compared.
at::Tensor token_log_probs(const model::Model& model, const tensor::Batch& batch,
                           const tensor::StepKey& key, tensor::Units& units,
                           double temperature = 1);

// The value of what stands before each target, (n) float64, by a model that scores. With gradients,
// and without.
at::Tensor target_values(const model::Model& model, const tensor::Batch& batch,
                         const tensor::StepKey& key, tensor::Units& units);
at::Tensor token_values(const model::Model& model, const tensor::Batch& batch,
                        tensor::Units& units);

// The sum over each completion's targets, (n) -> (A) float64. The same bits every time, on GPUs
// too.
at::Tensor episode_sums(const at::Tensor& values, const tensor::Episodes& episodes);

// Of each completion's number one for each of its targets, (A) -> (n). For constants: its gradient
// would be a scatter.
at::Tensor of_targets(const at::Tensor& values, const tensor::Episodes& episodes);

}  // namespace skein::algorithms
