// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/square_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cstdint>

#include "skein/ops/fused.h"
#include "skein/ops/square_sum_kernel.h"

namespace skein::ops {
namespace {

bool fits(const at::Tensor& x) {
  return fits_kernels(x) && x.is_contiguous() &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace

void add_square_sum(const at::Tensor& x, const at::Tensor& sum) {
  if (!fits(x)) {
    const auto norm = at::linalg_vector_norm(x, 2, {}, false, at::kDouble);
    sum.add_(norm * norm);
    return;
  }
  const auto parts = at::empty({kSquareSumParts}, x.options().dtype(at::kDouble));
  add_square_sum_on_cuda({.x = x.const_data_ptr(),
                          .parts = parts.mutable_data_ptr<double>(),
                          .sum = sum.mutable_data_ptr<double>(),
                          .count = x.numel(),
                          .type = element_type(x)});
}

}  // namespace skein::ops
