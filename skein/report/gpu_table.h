// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can a GPU of this name do? Figures of NVIDIA's data sheets, in one table: MFU is measured
// against it, and `skein plan --gpu` plans with it.

#include <cstdint>
#include <string>
#include <string_view>

#include "skein/core/dtype.h"

namespace skein::report {

struct GpuModel {
  std::string_view name;  // its words must all stand in a device's name
  // TFLOP/s of dense matrix products that accumulate in fp32; 0: it has no such arithmetic.
  double bf16, fp16, fp32;
  double gib;          // of memory as its driver reports it, rounded down: ECC takes 1/16 of GDDR
  double memory_rate;  // GB/s
  double link_rate;    // GB/s that it sends to others of its machine: NVLink, else PCIe

  double flops(DType dtype) const;  // per second; 0 as above
  bool has_bfloat16() const { return bf16 > 0; }
  uint64_t bytes() const { return static_cast<uint64_t>(gib * 0x1p30); }
};

// `device` is CUDA's name ("NVIDIA H100 80GB HBM3") or the table's ("h100"). Null: not known.
const GpuModel* find_gpu(std::string_view device);
// "B200, H200, …", to be chosen from.
std::string known_gpus();

}  // namespace skein::report
