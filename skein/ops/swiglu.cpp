// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

namespace skein::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

}  // namespace skein::ops
