// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/checksum.h"

#include "skein/core/hash.h"

namespace skein::spill {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else
bool has_avx2() { return false; }
#endif

}  // namespace

uint64_t checksum(uint64_t block, std::span<const std::byte> bytes) {
  static const bool is_wide = has_avx2();
  if (is_wide) return checksum_avx2(block, bytes.data(), bytes.size());
  return hash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, block);
}

}  // namespace skein::spill
