// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

namespace skein::ops {

RopeTable rope_table(int64_t num_tokens, int64_t head_dim, double theta,
                     const at::TensorOptions& options) {
  const auto wide = options.dtype(at::kFloat).requires_grad(false);
  const auto exponent = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  const auto frequency = at::pow(theta, exponent).reciprocal();           // (D/2)
  const auto angle = at::outer(at::arange(num_tokens, wide), frequency);  // (T, D/2)
  return {angle.cos().to(options.dtype()), angle.sin().to(options.dtype())};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const auto half = x.size(-1) / 2;
  const auto first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  return at::cat({first * table.cos - second * table.sin, second * table.cos + first * table.sin},
                 -1);
}

}  // namespace skein::ops
