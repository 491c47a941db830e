// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/token_array.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>

#include "skein/core/error.h"

namespace skein::data {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

void TokenArray::Unmap::operator()(const uint16_t* start) const {
  ::munmap(const_cast<uint16_t*>(start), bytes);
}

TokenArray TokenArray::map(const fs::path& path) {
  const auto file = File::open_to_read(path);
  const uint64_t bytes = file.size();
  if (bytes % sizeof(uint16_t) != 0) {
    throw IoError(
        fmt::format("{} has {} bytes, an odd number: a .bin file holds little-endian uint16 token "
                    "ids, two bytes each; it was cut short or is no token file",
                    path.string(), bytes));
  }
  TokenArray array({});
  if (bytes == 0) return array;
  void* start = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (start == MAP_FAILED) throw_errno(fmt::format("cannot map {}", path.string()));
  array.mapped_ = {static_cast<const uint16_t*>(start), Unmap{bytes}};
  array.tokens_ = {array.mapped_.get(), bytes / sizeof(uint16_t)};
  return array;
}

}  // namespace skein::data
