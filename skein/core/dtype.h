// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The element types of tensors: in files, in configurations, in kernels. C++17: nvcc reads it too.

#include <cstdint>
#include <optional>
#include <string_view>

namespace skein {

// In the order of safetensors' reference writer, which is that of rising alignment. Files hold the
// names, not these numbers.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

uint64_t dtype_bytes(DType dtype);
// As config.json and torch write it: "bfloat16".
std::string_view dtype_word(DType dtype);
// As safetensors writes it: "BF16".
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace skein
