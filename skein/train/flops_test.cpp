// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/flops.h"

#include <gtest/gtest.h>

#include "skein/train/hardware.h"

namespace skein::train {
namespace {

TEST(Flops, ByHand) {
  const ModelShape shape{.num_layers = 2,
                         .hidden_size = 8,
                         .intermediate_size = 20,
                         .num_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 3,
                         .vocab_size = 100};
  // A layer: q 8*12, k and v 8*6 each, o 12*8, three matrices of 8*20; and the head once.
  EXPECT_EQ(matmul_parameters(shape), 2 * (96 + 48 + 48 + 96 + 480) + 800);
  EXPECT_EQ(training_flops_per_token(shape, 16), 6.0 * 2336 + 6 * 2 * 12 * 16);
}

TEST(Flops, Gpt2Small) {
  const ModelShape gpt2{.num_layers = 12,
                        .hidden_size = 768,
                        .intermediate_size = 3072,
                        .num_heads = 12,
                        .num_kv_heads = 12,
                        .head_dim = 64,
                        .vocab_size = 50257,
                        .gated_mlp = false};
  // 12 * 12 * 768^2 in the layers.
  EXPECT_EQ(matmul_parameters(gpt2), 84934656 + 50257 * 768);
  EXPECT_NEAR(training_flops_per_token(gpt2, 1024), 7.978e8, 1e5);
}

TEST(Flops, UtilisationIsTheShareOfAllDevices) {
  EXPECT_DOUBLE_EQ(model_flops_utilisation(1e9, 400e3, 800e12, 1), 0.5);
  EXPECT_DOUBLE_EQ(model_flops_utilisation(1e9, 400e3, 800e12, 2), 0.25);
}

TEST(Hardware, PeaksByName) {
  EXPECT_EQ(peak_flops("NVIDIA H200", Arithmetic::kBf16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", Arithmetic::kBf16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", Arithmetic::kBf16), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", Arithmetic::kTf32), 156e12);
  EXPECT_EQ(peak_flops("Tesla V100-SXM2-16GB", Arithmetic::kFp16), 125e12);
  EXPECT_EQ(peak_flops("NVIDIA GeForce RTX 4090", Arithmetic::kFp32), 82.6e12);
  EXPECT_EQ(peak_flops("NVIDIA L4", Arithmetic::kBf16), 121e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S", Arithmetic::kBf16), 362e12);
  EXPECT_EQ(peak_flops("Tesla T4", Arithmetic::kFp16), 65e12);
}

TEST(Hardware, UnknownIsNoneAndSaysWhy) {
  EXPECT_FALSE(peak_flops("NVIDIA A10G", Arithmetic::kBf16));  // not an A10
  EXPECT_FALSE(peak_flops("Tesla T4", Arithmetic::kBf16));
  EXPECT_FALSE(peak_flops("cpu", Arithmetic::kFp32));
  EXPECT_EQ(describe_peak("Tesla T4", Arithmetic::kBf16), "no MFU: Tesla T4 has no native bf16");
  EXPECT_EQ(describe_peak("Acme 1", Arithmetic::kBf16),
            "no MFU: 'Acme 1' is not in the table of device peaks");
  EXPECT_EQ(describe_peak("cpu", Arithmetic::kFp32), "no MFU: CPUs have no stated peak");
  EXPECT_EQ(describe_peak("NVIDIA H200", Arithmetic::kBf16),
            "MFU against 989 TFLOP/s (bf16 dense, NVIDIA H200)");
}

TEST(Hardware, MonitorOfAGpuThatIsNotThereIsNone) {
  EXPECT_EQ(GpuMonitor::open("FFFF:FF:1F.7"), nullptr);
}

}  // namespace
}  // namespace skein::train
