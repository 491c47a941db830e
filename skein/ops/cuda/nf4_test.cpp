// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/nf4.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "skein/ops/device.h"

namespace skein::ops {
namespace {

at::Tensor packed(const Nf4Matrix& matrix) {
  const auto values = at::randn({matrix.rows * matrix.columns}) * 0.02;
  return quantise_nf4(matrix.layout(), [&](int64_t begin, const at::Tensor& out) {
    out.copy_(values.narrow(0, begin, out.numel()));
  });
}

TEST(CudaNf4, HasTheBitsOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const bool doubly : {false, true}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 64},
                                        {1024, 4096},
                                        {300, 1000},
                                        {3, 67},  // neither blocks nor threads are whole
                                        {1, 5}}) {
      const Nf4Matrix matrix{.rows = rows, .columns = columns, .doubly = doubly};
      const auto bytes = packed(matrix);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const auto expected = dequantise_nf4(bytes, matrix, dtype);
        const auto found = dequantise_nf4(bytes.to(at::kCUDA), matrix, dtype);
        EXPECT_TRUE(found.cpu().equal(expected)) << rows << " x " << columns << " " << dtype;
      }
    }
  }
}

TEST(CudaNf4, NeedsNothingBesideTheMatrix) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const Nf4Matrix matrix{.rows = 4096, .columns = 14336};
  const auto bytes = packed(matrix).to(at::kCUDA);
  const auto before = device_memory(true);
  const auto out = dequantise_nf4(bytes, matrix, at::kBFloat16);
  const auto needed = static_cast<int64_t>(out.nbytes()) + (1 << 20);
  EXPECT_LE(device_memory(true).peak, std::max(before.peak, before.allocated + needed));
}

}  // namespace
}  // namespace skein::ops
