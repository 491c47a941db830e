// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/update_bench.h"

#include <gtest/gtest.h>

namespace skein::optim {
namespace {

TEST(UpdateBench, MeasuresAllThreeForEveryType) {
  for (const auto dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto found = bench_update({.elements = 1024, .dtype = dtype, .rounds = 1, .threads = 2});
    EXPECT_GT(found.update, 0);
    EXPECT_GT(found.triad, 0);
    EXPECT_GT(found.torch, 0);
  }
}

}  // namespace
}  // namespace skein::optim
