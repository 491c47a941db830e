// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/flat_memory.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

TEST(FlatMemory, CountsMediaApart) {
  const auto memory = FlatMemory::create(at::kCPU);
  auto weights = memory->allocate(256, at::kBFloat16);
  {
    const auto master = memory->allocate(256, at::kFloat, Medium::kPinnedHost);
    const auto unit = memory->allocate_unset(128, at::kFloat);
    EXPECT_EQ(master.tensor().count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(memory->all_bytes(), (MediumBytes{.device = 1024, .pinned_host = 1024}));
  }
  EXPECT_EQ(memory->all_bytes(), (MediumBytes{.device = 512}));
  EXPECT_EQ(memory->all_peak_bytes(), (MediumBytes{.device = 1024, .pinned_host = 1024}));
  EXPECT_EQ(memory->bytes(), 512);
  EXPECT_EQ(memory->peak_bytes(), 1024);
  weights.reset();
  EXPECT_EQ(memory->all_bytes(), MediumBytes());
}

TEST(FlatMemory, AMovedBufferStaysInItsMedium) {
  const auto memory = FlatMemory::create(at::kCPU);
  auto first = memory->allocate(128, at::kFloat, Medium::kPinnedHost);
  auto second = memory->allocate(128, at::kFloat);
  second = std::move(first);
  EXPECT_EQ(memory->all_bytes(), (MediumBytes{.pinned_host = 512}));
  second.reset();
  EXPECT_EQ(memory->all_bytes(), MediumBytes());
}

TEST(FlatMemory, HasNoTensorOnADisk) {
  const auto memory = FlatMemory::create(at::kCPU);
  EXPECT_THROW(memory->allocate(128, at::kFloat, Medium::kDisk), InternalError);
}

}  // namespace
}  // namespace skein::tensor
