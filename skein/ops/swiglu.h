// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

namespace skein::ops {

// silu(gate) · up, elementwise.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace skein::ops
