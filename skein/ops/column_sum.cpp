// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/column_sum.h"

#include <ATen/ops/empty.h>

#include "skein/ops/column_sum_kernel.h"
#include "skein/ops/fused.h"

namespace skein::ops {

at::Tensor column_sum(const at::Tensor& x) {
  if (!fits_kernels(x) || x.numel() == 0) return x.sum(0);
  const auto input = x.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  const auto parts =
      at::empty({column_sum_parts(rows, columns), columns}, x.options().dtype(at::kFloat));
  auto sum = at::empty({columns}, x.options());
  column_sum_on_cuda({.x = input.const_data_ptr(),
                      .parts = parts.mutable_data_ptr<float>(),
                      .sum = sum.mutable_data_ptr(),
                      .rows = rows,
                      .columns = columns,
                      .type = element_type(x)});
  return sum;
}

}  // namespace skein::ops
