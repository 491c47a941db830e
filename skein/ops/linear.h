// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace skein::ops {

struct LinearParameters {
  at::Tensor weight;  // (out, in), or a transposed view of (in, out)
  at::Tensor bias;    // (out), or undefined
};

// x · weightᵀ + bias for each layer, (…, in) -> (…, out). On a GPU, layers that share an input sum
// its gradient in the matrix products themselves, and biases' gradients are read in one pass.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);

}  // namespace skein::ops
