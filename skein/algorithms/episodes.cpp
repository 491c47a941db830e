// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/episodes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>

#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

const tensor::Episodes& episodes_of(const tensor::Batch& batch) {
  SKEIN_CHECK(batch.episodes, "a batch of completions that were sampled");
  return *batch.episodes;
}

}  // namespace

model::TokenNumbers target_numbers(const model::Model& model, const tensor::Batch& batch,
                                   const tensor::StepKey& key, tensor::Units& units,
                                   const model::HeadWish& wish) {
  const auto& places = episodes_of(batch).places;
  auto numbers = model.head_log_probs(model.forward(batch, key, units), batch, units, wish);
  for (auto* one : {&numbers.log_probs, &numbers.entropy, &numbers.mean_logits}) {
    // Of rows they lie at the places of all tokens.
    if (one->defined() && !batch.run) *one = one->flatten().index_select(0, places);
  }
  numbers.log_probs = numbers.log_probs.to(at::kDouble);
  return numbers;
}

at::Tensor token_log_probs(const model::Model& model, const tensor::Batch& batch,
                           const tensor::StepKey& key, tensor::Units& units, double temperature) {
  const at::NoGradGuard no_grad;
  return target_numbers(model, batch, key, units,
                        {.temperature = temperature, .adapters = key.adapters})
      .log_probs;
}

at::Tensor target_values(const model::Model& model, const tensor::Batch& batch,
                         const tensor::StepKey& key, tensor::Units& units) {
  const auto& places = episodes_of(batch).places;
  return model.head_scores(model.forward(batch, key, units), places, units).to(at::kDouble);
}

at::Tensor token_values(const model::Model& model, const tensor::Batch& batch,
                        tensor::Units& units) {
  const at::NoGradGuard no_grad;
  return target_values(model, batch, {.training = false}, units);
}

at::Tensor episode_sums(const at::Tensor& values, const tensor::Episodes& episodes) {
  // A gather of rows that are padded with a zero, not a scatter: the order of a sum is fixed.
  const auto padded = at::constant_pad_nd(values.to(at::kDouble), {0, 1});
  const auto& targets = episodes.targets;
  return padded.index_select(0, targets.flatten()).view(targets.sizes()).sum(1);
}

at::Tensor of_targets(const at::Tensor& values, const tensor::Episodes& episodes) {
  return values.index_select(0, episodes.owners);
}

}  // namespace skein::algorithms
