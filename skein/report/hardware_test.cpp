// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/hardware.h"

#include <gtest/gtest.h>

namespace skein::report {
namespace {

TEST(Hardware, PeaksByName) {
  EXPECT_EQ(peak_flops("NVIDIA H200", DType::kBF16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", DType::kBF16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", DType::kBF16), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", DType::kF32), 19.5e12);
  EXPECT_EQ(peak_flops("Tesla V100-SXM2-16GB", DType::kF16), 125e12);
  EXPECT_EQ(peak_flops("NVIDIA GeForce RTX 4090", DType::kF32), 82.6e12);
  EXPECT_EQ(peak_flops("NVIDIA L4", DType::kBF16), 121e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S", DType::kBF16), 362e12);
  EXPECT_EQ(peak_flops("Tesla T4", DType::kF16), 65e12);
}

TEST(Hardware, UnknownIsNoneAndSaysWhy) {
  EXPECT_FALSE(peak_flops("NVIDIA A10G", DType::kBF16));  // not an A10
  EXPECT_FALSE(peak_flops("Tesla T4", DType::kBF16));
  EXPECT_FALSE(peak_flops("cpu", DType::kF32));
  EXPECT_EQ(describe_peak("Tesla T4", DType::kBF16), "no MFU: Tesla T4 has no native bfloat16");
  EXPECT_EQ(describe_peak("Acme 1", DType::kBF16),
            "no MFU: 'Acme 1' is not in the table of device peaks");
  EXPECT_EQ(describe_peak("cpu", DType::kF32), "no MFU: CPUs have no stated peak");
  EXPECT_EQ(describe_peak("NVIDIA H200", DType::kBF16),
            "MFU against 989 TFLOP/s (bfloat16 dense, NVIDIA H200)");
}

TEST(Hardware, MonitorOfAGpuThatIsNotThereIsNone) {
  EXPECT_EQ(GpuMonitor::open("FFFF:FF:1F.7"), nullptr);
}

}  // namespace
}  // namespace skein::report
