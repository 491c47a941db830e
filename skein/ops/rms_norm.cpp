// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/rms_norm.h"

#include <ATen/TensorOperators.h>

namespace skein::ops {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const auto wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (wide * (variance + epsilon).rsqrt()).to(x.scalar_type());
}

}  // namespace skein::ops
