// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/dtype.h"

#include <fmt/format.h>

#include <utility>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {{DType::kBool, at::kBool},
                                                       {DType::kU8, at::kByte},
                                                       {DType::kI8, at::kChar},
                                                       {DType::kI16, at::kShort},
                                                       {DType::kF16, at::kHalf},
                                                       {DType::kBF16, at::kBFloat16},
                                                       {DType::kI32, at::kInt},
                                                       {DType::kF32, at::kFloat},
                                                       {DType::kF64, at::kDouble},
                                                       {DType::kI64, at::kLong},
                                                       {DType::kF8E4M3, at::kFloat8_e4m3fn},
                                                       {DType::kF8E5M2, at::kFloat8_e5m2}};

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar == type) return dtype;
  }
  throw UserError(fmt::format("tensors of type {} are not stored", c10::toString(type)));
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [stored, scalar] : kTypes) {
    if (stored == dtype) return scalar;
  }
  throw UserError(fmt::format("tensors of type {} are not read", dtype_name(dtype)));
}

}  // namespace skein::tensor
