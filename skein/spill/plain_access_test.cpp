// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A file as memory: the two sides see each other's bytes, and are never used at the same time.

#include "skein/core/error.h"
#include "skein/spill/testing.h"

namespace skein::spill {
namespace {

using Use = SpillFile::Use;

class PlainAccessTest : public TemporaryFolder {
 protected:
  PlainAccessTest() { bytes_.fill(1); }

  SpillOptions options_{.block_bytes = kTestBlock};
  AlignedBytes bytes_{kTestSize}, read_{kTestSize};
};

TEST_F(PlainAccessTest, BothSidesSeeEachOthersBytes) {
  for (const auto& way : ways()) {
    SCOPED_TRACE(way.name);
    const WayFolder folder(way);
    SpillFile file(folder.path(), kTestSize, folder.options());
    for (uint64_t round = 0; round < 20; ++round) {
      bytes_.fill(2 * round);
      write_all(file, bytes_);
      {
        const SpillFile::PlainAccess access(file, Use::kRead);
        ASSERT_TRUE(equal(file.memory(), bytes_.all())) << round;
      }
      bytes_.fill(2 * round + 1);
      {
        const SpillFile::PlainAccess access(file, Use::kWrite);
        std::memcpy(file.memory().data(), bytes_.all().data(), kTestSize);
      }
      read_all(file, read_);
      ASSERT_TRUE(equal(read_.all(), bytes_.all())) << round;
    }
  }
}

// Neither side's bytes come from pages that were cached before the other wrote.
TEST_F(PlainAccessTest, PartsThatEitherSideChangesStayApart) {
  SpillFile file(folder_, kTestSize, options_);
  write_all(file, bytes_);
  {
    const SpillFile::PlainAccess access(file, Use::kRead);
    ASSERT_TRUE(equal(file.memory(), bytes_.all()));
  }
  bytes_.part(0, kTestBlock)[5] = std::byte{7};
  file.wait(file.write(0, bytes_.part(0, kTestBlock)));
  {
    const SpillFile::PlainAccess access(file, Use::kWrite);
    ASSERT_EQ(file.memory()[5], std::byte{7});
    file.memory()[kTestBlock + 5] = bytes_.all()[kTestBlock + 5] = std::byte{8};
  }
  bytes_.part(2 * kTestBlock, kTestBlock)[5] = std::byte{9};
  file.wait(file.write(2 * kTestBlock, bytes_.part(2 * kTestBlock, kTestBlock)));
  read_all(file, read_);
  EXPECT_TRUE(equal(read_.all(), bytes_.all()));
}

TEST_F(PlainAccessTest, ChecksumsOutliveReadingAndAreMadeAfterWriting) {
  SpillFile file(folder_, kTestSize, options_);
  const std::byte wrong[] = {~bytes_.all()[0]};
  write_all(file, bytes_);
  {
    const SpillFile::PlainAccess access(file, Use::kRead);
  }
  open_as_stranger(file).write_at(0, wrong);
  EXPECT_THROW(read_all(file, read_), IoError);
  {
    const SpillFile::PlainAccess access(file, Use::kWrite);
  }
  read_all(file, read_);  // whatever was there is now what its owner wants
  EXPECT_EQ(read_.all()[0], wrong[0]);
  // And is found out like everything else when it changes.
  open_as_stranger(file).write_at(0, bytes_.all().first(1));
  EXPECT_THROW(read_all(file, read_), IoError);
}

TEST_F(PlainAccessTest, VerifyComparesWithoutATransfer) {
  SpillFile file(folder_, kTestSize, options_);
  write_all(file, bytes_);
  {
    SpillFile::PlainAccess(file, Use::kRead).verify();
  }
  const uint64_t place = kTestSize - 1;  // in the shorter last block
  const std::byte wrong[] = {~bytes_.all()[place]};
  open_as_stranger(file).write_at(place, wrong);
  const SpillFile::PlainAccess access(file, Use::kRead);
  EXPECT_PRED2(contains, refusal<IoError>([&] { access.verify(); }),
               fmt::format("4096 bytes at byte {}", 20 * kTestBlock));
}

TEST_F(PlainAccessTest, TransfersAndMemoryAreNeverUsedTogether) {
  SpillFile file(folder_, kTestSize, options_);
  file.write(0, bytes_.all());
  {
    const SpillFile::PlainAccess access(file, Use::kRead);  // waits for it
    EXPECT_TRUE(equal(file.memory(), bytes_.all()));
    EXPECT_THROW(file.read(0, read_.part(0, kTestBlock)), InternalError);
    EXPECT_THROW(SpillFile::PlainAccess(file, Use::kRead), InternalError);
  }
  read_all(file, read_);
}

TEST_F(PlainAccessTest, AFileThatWasCutShortIsNotTouched) {
  SpillFile file(folder_, kTestSize, options_);
  open_as_stranger(file).resize(kTestBlock);
  EXPECT_THROW(SpillFile::PlainAccess(file, Use::kRead), IoError);
}

using PlainAccessDeathTest = PlainAccessTest;

TEST_F(PlainAccessDeathTest, TouchingTheMemoryOutsideEndsTheProcess) {
  SpillFile file(folder_, kTestSize, options_);
  {
    const SpillFile::PlainAccess access(file, Use::kWrite);
    file.memory()[0] = std::byte{1};
  }
  EXPECT_DEATH(file.memory()[0] = std::byte{2}, "");
  EXPECT_DEATH(
      {
        const SpillFile::PlainAccess access(file, Use::kRead);
        file.memory()[0] = std::byte{2};
      },
      "");
}

}  // namespace
}  // namespace skein::spill
