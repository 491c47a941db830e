// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "skein/core/error.h"

namespace skein::data {
namespace {

constexpr uint64_t kHeaderBytes = 256 * sizeof(int32_t);

struct Layout {
  int32_t magic;
  int32_t version;
  TokenWidth width;
};
constexpr std::array kLayouts = {Layout{20240520, 1, TokenWidth::k16},
                                 Layout{20240801, 7, TokenWidth::k32}};

struct Header {
  int32_t magic = 0;
  int32_t version = 0;
  int32_t count = 0;
};

std::optional<Header> read_header(const File& file) {
  if (file.size() < sizeof(Header)) return std::nullopt;
  std::array<Header, 1> header;
  file.read_at(0, std::as_writable_bytes(std::span(header)));
  return header[0];
}

TokenRegion locate_with_header(const fs::path& path, uint64_t size, const Header& header,
                               const Layout& layout) {
  if (header.version != layout.version) {
    throw IoError(fmt::format("{}: an llm.c token file of version {}; version {} is known",
                              path.string(), header.version, layout.version));
  }
  const uint64_t count = header.count < 0 ? 0 : static_cast<uint64_t>(header.count);
  TokenRegion region{.path = path, .offset = kHeaderBytes, .count = count, .width = layout.width};
  if (header.count < 0 || size != kHeaderBytes + region.bytes()) {
    throw IoError(
        fmt::format("{}: its header promises {} tokens of {} bytes, but after the header of {} "
                    "bytes the file has {}; it was cut short or is damaged",
                    path.string(), header.count, static_cast<uint32_t>(layout.width), kHeaderBytes,
                    size < kHeaderBytes ? 0 : size - kHeaderBytes));
  }
  return region;
}

// 32-bit ids read as pairs of 16-bit ones: every second one is tiny, the others are not. In text
// of 16-bit ids, no two tokens in a row are as regular as that.
bool looks_32_bits_wide(const File& file, uint64_t size) {
  constexpr uint64_t kMinPairs = 64, kPairs = 16384, kMaxHigh = 15;
  if (size % 4 != 0 || size / 4 < kMinPairs) return false;
  std::vector<uint16_t> halves(2 * std::min(size / 4, kPairs));
  file.read_at(0, std::as_writable_bytes(std::span(halves)));
  uint16_t low = 0, high = 0;
  for (size_t i = 0; i < halves.size(); i += 2) {
    low = std::max(low, halves[i]);
    high = std::max(high, halves[i + 1]);
  }
  return high <= kMaxHigh && low > 16 * (kMaxHigh + 1);
}

}  // namespace

bool is_token_file(const fs::path& path) { return path.extension() == ".bin"; }

TokenRegion locate_tokens(const fs::path& path) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  const auto header = read_header(file);
  for (const auto& layout : kLayouts) {
    if (header && header->magic == layout.magic) {
      return locate_with_header(path, size, *header, layout);
    }
  }
  if (size % sizeof(uint16_t) != 0) {
    throw IoError(
        fmt::format("{} has {} bytes, an odd number: a .bin file holds little-endian uint16 token "
                    "ids, two bytes each; it was cut short or is no token file",
                    path.string(), size));
  }
  const auto width = looks_32_bits_wide(file, size) ? TokenWidth::k32 : TokenWidth::k16;
  return {.path = path, .count = size / static_cast<uint64_t>(width), .width = width};
}

}  // namespace skein::data
