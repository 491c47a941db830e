// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors do the fused CUDA kernels take? Everything else runs the plain formula of the same
// file, which is also the kernels' reference.

#include <ATen/core/Tensor.h>

#include "skein/ops/element_type.h"

namespace skein::ops {

// fp32 or bf16 on a GPU, with rows of whole sixteen-byte vectors.
inline bool fits_kernels(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         x.size(-1) % 8 == 0;
}

inline ElementType element_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat;
}

}  // namespace skein::ops
