// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Element types of raw-pointer kernels. Free of torch, C++17: nvcc reads it too.

#include <cstdint>

namespace skein::ops {

enum class ElementType : uint8_t { kFloat, kBFloat16, kHalf };

}  // namespace skein::ops
