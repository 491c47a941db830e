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

// The largest of the even and of the odd words of a sample.
template <typename Word>
struct Halves {
  Word low = 0, high = 0;
};

constexpr uint64_t kMinPairs = 64, kPairs = 16384;

template <typename Word>
Halves<Word> halves_at(const File& file, uint64_t offset) {
  constexpr uint64_t kPairBytes = 2 * sizeof(Word);
  std::vector<Word> words(2 * std::min((file.size() - offset) / kPairBytes, kPairs));
  file.read_at(offset, std::as_writable_bytes(std::span(words)));
  Halves<Word> halves;
  for (size_t i = 0; i < words.size(); i += 2) {
    halves.low = std::max(halves.low, words[i]);
    halves.high = std::max(halves.high, words[i + 1]);
  }
  return halves;
}

// 32-bit ids read as pairs of 16-bit ones: every second one is tiny, the others are not. In text
// of 16-bit ids, no two tokens in a row are as regular as that.
bool looks_32_bits_wide(const File& file, uint64_t size) {
  constexpr uint16_t kMaxHigh = 15;
  if (size % 4 != 0 || size / 4 < kMinPairs) return false;
  const auto [low, high] = halves_at<uint16_t>(file, 0);
  return high <= kMaxHigh && low > (high == 0 ? 0 : 16 * (kMaxHigh + 1));
}

// The same for 64-bit integers, in which no file of ids is meant to be.
void refuse_64_bits(const fs::path& path, const File& file, uint64_t size) {
  if (size % 8 != 0 || size / 8 < kMinPairs) return;
  const uint64_t last = size - std::min(size / 8, kPairs) * 8;
  for (const uint64_t offset : {uint64_t{0}, last / 16 * 8, last}) {
    const auto [low, high] = halves_at<uint32_t>(file, offset);
    if (high != 0 || low == 0) return;
  }
  throw IoError(
      fmt::format("{}: every second 32-bit number is 0: it holds 64-bit integers, numpy's default; "
                  "write ids.astype(np.uint16).tofile(…), or np.uint32 for ids above 65,535",
                  path.string()));
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
  refuse_64_bits(path, file, size);
  const auto width = looks_32_bits_wide(file, size) ? TokenWidth::k32 : TokenWidth::k16;
  return {.path = path, .count = size / static_cast<uint64_t>(width), .width = width};
}

}  // namespace skein::data
