// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Compiled for AVX2, and called where there is some. It includes nothing else: what a header
// defines would be compiled for AVX2 too, and the linker might take it for everybody.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "skein/spill/checksum.h"

namespace skein::spill {

uint64_t checksum_avx2(uint64_t block, const void* bytes, size_t size) {
  return XXH3_64bits_withSeed(bytes, size, block);
}

}  // namespace skein::spill
