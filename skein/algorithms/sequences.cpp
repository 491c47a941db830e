// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>

namespace skein::algorithms {

at::Tensor answer_sums(const at::Tensor& values, const tensor::Answers& answers,
                       const at::Tensor& weights) {
  // A gather of rows that are padded with a zero, not a scatter: the order of a sum is fixed.
  const auto padded = at::constant_pad_nd(values.flatten().to(at::kDouble), {0, 1});
  auto rows = padded.index_select(0, answers.targets.flatten()).view(answers.targets.sizes());
  if (weights.defined()) rows = rows * weights;
  return rows.sum(1);
}

PairValues pairs_of(const at::Tensor& values) {
  const auto pairs = values.view({-1, 2});
  return {pairs.select(1, 0), pairs.select(1, 1)};
}

}  // namespace skein::algorithms
