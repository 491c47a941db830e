// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From numbers of tokens to numbers of answers.

#include <ATen/core/Tensor.h>

#include "skein/tensor/batch.h"

namespace skein::algorithms {

// The sum over each answer's targets -> (A) float64. `values`: of each token, as
// model::TokenNumbers gives them. `weights` (A, longest) where defined: of each target, in the
// order of the answer. The same bits every time, on GPUs too.
at::Tensor answer_sums(const at::Tensor& values, const tensor::Answers& answers,
                       const at::Tensor& weights = {});

// Of answers 0, 2, … and of 1, 3, …: the chosen and the rejected ones of pairs, (P) each.
struct PairValues {
  at::Tensor chosen, rejected;
};
PairValues pairs_of(const at::Tensor& values);

}  // namespace skein::algorithms
