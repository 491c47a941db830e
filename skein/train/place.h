// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What this rank computes on, for plan's rules.

#include <ATen/core/Tensor.h>

#include <string>

#include "skein/ops/device.h"
#include "skein/plan/rules.h"

namespace skein::train {

inline plan::Place place_of(at::Device device) {
  if (!device.is_cuda()) return {};
  return {config::Device::kCuda, ops::has_native_bfloat16(device.index())};
}

// "NVIDIA H200", "cpu".
inline std::string device_name(at::Device device) {
  return device.is_cuda() ? ops::device_name(device.index()) : "cpu";
}

}  // namespace skein::train
