// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

namespace skein::ops {

// (N, C) -> (C): summed in fp32 (fp64 for float64), rounded once to x's dtype. The order depends on
// the shape alone.
at::Tensor column_sum(const at::Tensor& x);

}  // namespace skein::ops
