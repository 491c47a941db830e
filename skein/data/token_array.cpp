// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/token_array.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "skein/core/error.h"

namespace skein::data {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

void TokenArray::Unmap::operator()(const std::byte* start) const {
  ::munmap(const_cast<std::byte*>(start), bytes);
}

TokenArray::TokenArray(std::span<const TokenRegion> regions) {
  for (const auto& region : regions) {
    if (region.count == 0) continue;  // an empty range cannot be mapped
    segments_.push_back(map(region, size_));
    size_ += segments_.back().count;
  }
}

TokenArray::Segment TokenArray::map(const TokenRegion& region, int64_t begin) {
  const auto file = File::open_to_read(region.path);
  const uint64_t bytes = region.offset + region.bytes();
  if (file.size() < bytes) {
    throw IoError(fmt::format("{} has {} bytes and should have {}: it was cut short",
                              region.path.string(), file.size(), bytes));
  }
  void* start = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (start == MAP_FAILED) throw_errno(fmt::format("cannot map {}", region.path.string()));
  const auto* first = static_cast<const std::byte*>(start);
  return {.mapping = {first, Unmap{bytes}},
          .first = first + region.offset,
          .begin = begin,
          .count = static_cast<int64_t>(region.count),
          .width = region.width};
}

template <typename Take>
void TokenArray::visit(int64_t begin, int64_t end, const Take& take) const {
  SKEIN_CHECK(0 <= begin && begin <= end && end <= size_,
              fmt::format("tokens {} to {} of {}", begin, end, size_));
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                  [](int64_t at, const Segment& s) { return at < s.begin; });
  for (; begin < end; ++segment) {
    const auto& s = *std::prev(segment);
    const int64_t stop = std::min(end, s.begin + s.count);
    const auto part = [&](const auto* first) {
      take(std::span(first + (begin - s.begin), static_cast<size_t>(stop - begin)), begin);
    };
    if (s.width == TokenWidth::k16) {
      part(reinterpret_cast<const uint16_t*>(s.first));
    } else {
      part(reinterpret_cast<const uint32_t*>(s.first));
    }
    begin = stop;
  }
}

void TokenArray::copy(int64_t begin, std::span<int64_t> out) const {
  visit(begin, begin + static_cast<int64_t>(out.size()), [&](auto tokens, int64_t at) {
    std::copy(tokens.begin(), tokens.end(), out.begin() + (at - begin));
  });
}

std::vector<uint32_t> TokenArray::read(int64_t begin, int64_t count) const {
  std::vector<uint32_t> out;
  out.reserve(static_cast<size_t>(count));
  visit(begin, begin + count,
        [&](auto tokens, int64_t) { out.insert(out.end(), tokens.begin(), tokens.end()); });
  return out;
}

int64_t TokenArray::first_outside(int64_t vocabulary) const {
  int64_t found = size_;
  visit(0, size_, [&](auto tokens, int64_t at) {
    if (found < size_) return;
    const auto outside =
        std::find_if(tokens.begin(), tokens.end(), [&](auto token) { return token >= vocabulary; });
    if (outside != tokens.end()) found = at + (outside - tokens.begin());
  });
  return found;
}

uint32_t TokenArray::largest(int64_t begin, int64_t end) const {
  uint32_t result = 0;
  visit(begin, end, [&](auto tokens, int64_t) {
    result = std::max<uint32_t>(result, *std::max_element(tokens.begin(), tokens.end()));
  });
  return result;
}

}  // namespace skein::data
