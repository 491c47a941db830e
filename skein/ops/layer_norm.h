// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

#include "skein/ops/added_norm.h"

namespace skein::ops {

struct LayerNorm {
  at::Tensor weight, bias;  // (C)
  double epsilon = 1e-5;
};

// (x − mean) / √(variance + epsilon) · weight + bias over the last dimension, in fp32 (fp64 for
// float64), rounded once to x's dtype.
at::Tensor layer_norm(const at::Tensor& x, const LayerNorm& norm);  // (…, C)

// The sum x + delta and its layer_norm. Where delta is undefined, the sum is x.
AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const LayerNorm& norm);

}  // namespace skein::ops
