// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace skein {

uint64_t hash64(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::string digest(std::span<const std::byte> bytes) {
  const auto hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest(std::string_view text) { return digest(std::as_bytes(std::span(text))); }

}  // namespace skein
