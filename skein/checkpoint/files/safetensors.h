// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The safetensors header: which bytes of a file are which tensor.
//
// A file is an 8-byte little-endian length N, N bytes of JSON, then the tensors' bytes, row-major
// and little-endian. The parser takes files from strangers: every length, product and range is
// checked before it is used, and whatever is not exactly right is refused with an IoError that
// names the file and the tensor. The builder writes the bytes that the reference writer would.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/dtype.h"
#include "skein/core/file.h"

namespace skein::checkpoint {

// A tensor as a caller describes it.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
};

// Absent when the product does not fit 64 bits.
std::optional<uint64_t> element_count(const std::vector<uint64_t>& shape);
std::optional<uint64_t> byte_count(const std::vector<uint64_t>& shape, DType dtype);

// A tensor as a header places it: bytes [begin, end) of the data section.
struct PlacedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;

struct Header {
  uint64_t data_begin = 0;            // of the data section, in the file
  std::vector<PlacedTensor> tensors;  // by position; they cover the data section without a gap
  Metadata metadata;
};

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
inline constexpr uint64_t kMaxDimensions = 8;
inline constexpr uint64_t kMaxNameBytes = 4096;

// `json` is the header's text, `data_bytes` the length of the data section, `file` for messages.
Header parse_header(std::string_view json, uint64_t data_bytes, std::string_view file);
Header read_header(const File& file, std::string_view name);

// The length, the text and its padding. `tensors` comes back placed, in the order of the file:
// descending alignment, then name. `metadata` is UTF-8; without "format", other programs refuse the
// file.
std::string build_header(std::vector<TensorEntry> entries, std::vector<PlacedTensor>& tensors,
                         const Metadata& metadata = {{"format", "pt"}});

}  // namespace skein::checkpoint
