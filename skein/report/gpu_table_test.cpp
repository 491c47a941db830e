// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/gpu_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace skein::report {
namespace {

TEST(GpuTable, KnowsCudasNamesAndShortOnes) {
  const auto named = [](const char* device) {
    const auto* gpu = find_gpu(device);
    return gpu == nullptr ? "" : gpu->name;
  };
  EXPECT_EQ(named("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(named("h100"), "H100");
  EXPECT_EQ(named("NVIDIA H100 PCIe"), "H100 PCIe");
  EXPECT_EQ(named("A100-40"), "A100 40");
  EXPECT_EQ(named("NVIDIA A100-SXM4-40GB"), "A100 40GB");
  EXPECT_EQ(named("NVIDIA A100-SXM4-80GB"), "A100");
  EXPECT_EQ(named("Tesla V100-SXM2-32GB"), "V100 32GB");
  EXPECT_EQ(named("4090"), "RTX 4090");
  EXPECT_EQ(named("RTX4090"), "RTX 4090");
  EXPECT_EQ(named("rtx-3090"), "RTX 3090");
  EXPECT_EQ(named("3090"), "RTX 3090");
  EXPECT_EQ(named("NVIDIA GeForce RTX 3090"), "RTX 3090");
  EXPECT_EQ(named("NVIDIA RTX A6000"), "A6000");
  EXPECT_EQ(named("NVIDIA GeForce RTX 4090 D"), "");
  EXPECT_EQ(named("NVIDIA A10G"), "");
  EXPECT_EQ(named("MI300X"), "");
  EXPECT_EQ(named(""), "");
}

TEST(GpuTable, FiguresAreInUnitsOfOne) {
  const auto* gpu = find_gpu("H200");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->flops(DType::kBF16), 989e12);
  EXPECT_EQ(gpu->flops(DType::kF64), 0);
  EXPECT_EQ(gpu->bytes(), uint64_t{139} << 30);
  EXPECT_FALSE(find_gpu("T4")->has_bfloat16());
}

// What is offered to be typed can be typed, and every row has figures that a plan divides by.
TEST(GpuTable, EveryNameThatIsOfferedIsFound) {
  std::istringstream names(known_gpus());
  int count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    const auto* gpu = find_gpu(name);
    ASSERT_NE(gpu, nullptr) << name;
    std::string spelled(gpu->name);
    for (auto& letter : spelled) letter = letter == ' ' ? '-' : letter;
    EXPECT_EQ(spelled, name);
    EXPECT_GT(gpu->fp16 * gpu->fp32 * gpu->gib * gpu->memory_rate * gpu->link_rate, 0) << name;
    ++count;
  }
  EXPECT_GE(count, 20);
}

}  // namespace
}  // namespace skein::report
