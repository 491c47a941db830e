// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors do the fused CUDA kernels take? Everything else runs the plain formula of the same
// file, which is also the kernels' reference.

#include <ATen/core/Tensor.h>

#include "skein/core/dtype.h"
#include "skein/core/error.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {

inline bool has_element_type(const at::Tensor& x) {
  const auto dtype = x.scalar_type();
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

// fp32, bf16 or fp16 on a GPU, with rows of whole sixteen-byte vectors.
inline bool fits_kernels(const at::Tensor& x) {
  return x.is_cuda() && has_element_type(x) && x.size(-1) % 8 == 0;
}

inline DType element_type(const at::Tensor& x) {
  SKEIN_CHECK(has_element_type(x), "fused kernels take float, bfloat16 and half");
  return tensor::dtype_of(x.scalar_type());
}

}  // namespace skein::ops
