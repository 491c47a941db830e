// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The elements of tensor files as floats, and back with one rounding (to nearest, ties to even).

#include <cstddef>
#include <cstdint>
#include <span>

#include "skein/core/dtype.h"

namespace skein::convert {

// float16, bfloat16, float32 and float64. The last is rounded to a float first.
bool has_float_values(DType dtype);

// `bytes` are the elements of such a type, as many as `values`.
void to_floats(DType dtype, std::span<const std::byte> bytes, std::span<float> values);

// Returns how many finite values were too large and have become infinite.
uint64_t from_floats(std::span<const float> values, DType dtype, std::span<std::byte> bytes);

}  // namespace skein::convert
