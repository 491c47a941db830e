// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

namespace skein::ops {

// sum += Σ x², squared and added in float64. `sum` is a float64 scalar on x's device. The order of
// the additions depends on x's size alone. On a GPU x is read once and nothing is copied.
void add_square_sum(const at::Tensor& x, const at::Tensor& sum);

}  // namespace skein::ops
