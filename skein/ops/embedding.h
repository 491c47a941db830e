// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Rows of a table, one for each token.

#include <ATen/core/Tensor.h>

namespace skein::ops {

// weight (V, C), tokens (…) int64 -> (…, C). A row's gradient is the sum over the tokens that took
// it; of 16-bit weights too it is summed in fp32 and rounded once. torch rounds after every term on
// CPUs, where a frequent token loses most of its gradient, and after every 32nd on GPUs.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& tokens);

}  // namespace skein::ops
