// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/dtype.h"

#include <array>

namespace skein {
namespace {

struct Row {
  std::string_view name;  // safetensors'
  std::string_view word;  // torch's
  uint64_t bytes;
};

// In the order of the enum.
constexpr std::array<Row, 16> kRows{{{"BOOL", "bool", 1},
                                     {"U8", "uint8", 1},
                                     {"I8", "int8", 1},
                                     {"F8_E5M2", "float8_e5m2", 1},
                                     {"F8_E4M3", "float8_e4m3fn", 1},
                                     {"I16", "int16", 2},
                                     {"U16", "uint16", 2},
                                     {"F16", "float16", 2},
                                     {"BF16", "bfloat16", 2},
                                     {"I32", "int32", 4},
                                     {"U32", "uint32", 4},
                                     {"F32", "float32", 4},
                                     {"C64", "complex64", 8},
                                     {"F64", "float64", 8},
                                     {"I64", "int64", 8},
                                     {"U64", "uint64", 8}}};

const Row& row(DType dtype) { return kRows.at(static_cast<size_t>(dtype)); }

}  // namespace

uint64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }
std::string_view dtype_word(DType dtype) { return row(dtype).word; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace skein
