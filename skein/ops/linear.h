// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "skein/ops/dropout.h"
#include "skein/ops/nf4.h"

namespace skein::ops {

// scale · b · a beside a weight. It may be wider than the input: products are made in the input's
// dtype, gradients in its own.
struct LowRank {
  at::Tensor a;  // (rank, in)
  at::Tensor b;  // (out, rank)
  double scale = 1;
  Dropout dropout{};  // of its input alone
};

struct LinearParameters {
  at::Tensor weight;  // (out, in), or a transposed view of (in, out); or the bytes of `nf4`
  at::Tensor bias;    // (out), or undefined
  std::optional<LowRank> low_rank{};
  // The weight is in 4 bits and constant. Its values, in the input's dtype, exist while its own
  // product is made, in forward and again in backward: at most one layer's at a time.
  std::optional<Nf4Matrix> nf4{};
};

// x · weightᵀ + bias for each layer, (…, in) -> (…, out), and what its low-rank part adds. On a
// GPU, layers that share an input sum its gradient in the matrix products themselves, and biases'
// gradients are read in one pass. Inputs are kept for backward only where a gradient needs them;
// of a dropped input nothing is kept, its mask is drawn again. With dropout x is (B, T, in).
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);

}  // namespace skein::ops
