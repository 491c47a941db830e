// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do the tokens of a data set lie? In regions of mapped files, one behind the other.
//
// Ids are 16 or 32 bits wide, per region. A mapped file must not shrink while it is read; the
// kernel would end the process with SIGBUS.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skein/core/file.h"

namespace skein::data {

// Bytes per token id. Stored on disk: never renumber.
enum class TokenWidth : uint32_t { k16 = 2, k32 = 4 };

// `count` little-endian ids from byte `offset` (a multiple of the width) of a file.
struct TokenRegion {
  fs::path path;
  uint64_t offset = 0;
  uint64_t count = 0;
  TokenWidth width = TokenWidth::k16;

  uint64_t bytes() const { return count * static_cast<uint64_t>(width); }
};

class TokenArray {
 public:
  TokenArray() = default;
  // Throws IoError when a file is shorter than its region.
  explicit TokenArray(std::span<const TokenRegion> regions);

  int64_t size() const { return size_; }
  // The ids from `begin` on; requires begin + out.size() <= size().
  void copy(int64_t begin, std::span<int64_t> out) const;
  std::vector<uint32_t> read(int64_t begin, int64_t count) const;
  // The first token that is not below `vocabulary`; size() when there is none. Reads everything.
  int64_t first_outside(int64_t vocabulary) const;
  // 0 of an empty range.
  uint32_t largest(int64_t begin, int64_t end) const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* start) const;
  };
  struct Segment {
    std::unique_ptr<const std::byte, Unmap> mapping;
    const std::byte* first;  // of the first token
    int64_t begin;           // its place in the array
    int64_t count;
    TokenWidth width;
  };

  static Segment map(const TokenRegion& region, int64_t begin);
  // Calls take(span of uint16_t or uint32_t, place of its first token) for each part of the range.
  template <typename Take>
  void visit(int64_t begin, int64_t end, const Take& take) const;

  std::vector<Segment> segments_;
  int64_t size_ = 0;
};

}  // namespace skein::data
