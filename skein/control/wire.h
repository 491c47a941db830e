// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Little-endian integers in byte strings.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace skein::control {

template <std::integral T>
void put_integer(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

// The caller has checked that `bytes` holds offset + sizeof(T) bytes.
template <std::integral T>
T get_integer(std::string_view bytes, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace skein::control
