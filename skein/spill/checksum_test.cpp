// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/checksum.h"

#include "skein/core/hash.h"
#include "skein/spill/testing.h"

namespace skein::spill {
namespace {

TEST(Checksum, IsTheSameOnEveryInstructionSet) {
  const AlignedBytes bytes(uint64_t{64} << 10);
  bytes.fill(5);
  for (const size_t size : {size_t{4096}, size_t{8192}, size_t{64} << 10}) {
    const auto part = bytes.part(0, size);
    EXPECT_EQ(checksum(7, part), hash64({reinterpret_cast<const char*>(part.data()), size}, 7));
  }
}

TEST(Checksum, DependsOnEveryBitAndOnThePlace) {
  const AlignedBytes bytes(kAlignment);
  bytes.fill(6);
  const uint64_t before = checksum(7, bytes.all());
  EXPECT_NE(checksum(8, bytes.all()), before);
  bytes.all()[kAlignment - 1] ^= std::byte{0x80};
  EXPECT_NE(checksum(7, bytes.all()), before);
}

}  // namespace
}  // namespace skein::spill
