// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/spill_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/spill/testing.h"

namespace skein::spill {
namespace {

class SpillFileTest : public TemporaryFolder {
 protected:
  SpillFileTest() {
    written_.fill(1);
    options_.block_bytes = kTestBlock;
  }

  SpillOptions options_;
  AlignedBytes written_{kTestSize}, read_{kTestSize};
};

TEST_F(SpillFileTest, GivesBackWhatWasWrittenInEveryWay) {
  for (const auto& way : ways()) {
    SCOPED_TRACE(way.name);
    const WayFolder folder(way);
    SpillFile file(folder.path(), kTestSize, folder.options());
    std::vector<SpillFile::Ticket> tickets;
    // More at once than the depth, in an order that no one waits in.
    for (uint64_t at = 0; at < kTestSize; at += 2 * kTestBlock) {
      const auto bytes = std::min(2 * kTestBlock, kTestSize - at);
      tickets.push_back(file.write(at, written_.part(at, bytes)));
    }
    for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) file.wait(*ticket);
    // Reads need not be cut as the writes were.
    for (uint64_t at = 0; at < kTestSize; at += kTestBlock) {
      file.read(at, read_.part(at, std::min(kTestBlock, kTestSize - at)));
    }
    file.wait_all();
    EXPECT_TRUE(equal(written_.all(), read_.all()));
    std::memset(read_.all().data(), 0, kTestSize);
  }
}

TEST_F(SpillFileTest, ReadsAsZerosFirst) {
  SpillFile file(folder_, kTestSize, options_);
  read_all(file, read_);
  EXPECT_TRUE(std::all_of(read_.all().begin(), read_.all().end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(SpillFileTest, HasNoNameAndIsReadableByNobodyElse) {
  const SpillFile file(folder_, kTestSize, options_);
  EXPECT_TRUE(fs::is_empty(folder_));
  const auto stranger = open_as_stranger(file);
  struct stat info{};
  ASSERT_EQ(::fstat(stranger.descriptor(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0U);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(info.st_size, static_cast<off_t>(kTestSize));
  EXPECT_GE(info.st_blocks * 512, static_cast<off_t>(kTestSize)) << "no room was taken";
}

TEST_F(SpillFileTest, WaitsForWhatIsUnderWayWhenItGoes) {
  for (const auto engine : {EngineKind::kAuto, EngineKind::kThreads}) {
    options_.engine = engine;
    SpillFile file(folder_, kTestSize, options_);
    for (uint64_t at = 0; at < kTestSize; at += kTestBlock) {
      file.write(at, written_.part(at, std::min(kTestBlock, kTestSize - at)));
    }
  }
}

TEST_F(SpillFileTest, AFolderThatIsMissingOrNoneIsNamedWithTheKey) {
  const auto missing =
      refusal<IoError>([&] { const SpillFile file(folder_ / "none", kTestSize, options_); });
  EXPECT_EQ(missing, fmt::format("there is no folder {}: make it, or give nvme_path=FOLDER on a "
                                 "local disk",
                                 (folder_ / "none").string()));
  const auto plain = write("plain", "");
  const auto no_folder =
      refusal<IoError>([&] { const SpillFile file(plain, kTestSize, options_); });
  EXPECT_PRED2(contains, no_folder, plain.string() + ": Not a directory");
}

TEST_F(SpillFileTest, AFullDiskIsToldWithWhatIsNeededAndFree) {
  const uint64_t free = fs::space(folder_).available;
  const uint64_t needed = (free / kAlignment + 1'000'000) * kAlignment;
  const auto message = refusal<DiskFull>([&] { const SpillFile file(folder_, needed, options_); });
  EXPECT_PRED2(contains, message, fmt::format("({} bytes)", needed));
  EXPECT_PRED2(contains, message, "are free (");
  EXPECT_PRED2(contains, message, "nvme_path=FOLDER on another disk");
  EXPECT_TRUE(fs::is_empty(folder_));
}

// One whose room goes to somebody else between question and answer, or that has a quota.
class FullDisk : public FileSystem {
 public:
  int allocate(int, uint64_t) override {
    errno = EDQUOT;
    return -1;
  }
};

TEST_F(SpillFileTest, AnAllocationThatFailsIsAFullDisk) {
  FullDisk disk;
  const ScopedFileSystem scope(disk);
  const auto message =
      refusal<DiskFull>([&] { const SpillFile file(folder_, kTestSize, options_); });
  EXPECT_PRED2(contains, message, "has no room for 164.0 KiB (167936 bytes)");
}

TEST_F(SpillFileTest, ABlockThatChangedOnTheDiskIsFoundAndNamed) {
  for (const auto& way : ways()) {
    SCOPED_TRACE(way.name);
    const WayFolder folder(way);
    SpillFile file(folder.path(), kTestSize, folder.options());
    write_all(file, written_);
    const uint64_t place = 3 * kTestBlock + 17;
    const std::byte wrong[] = {std::byte{1} ^ written_.all()[place]};
    open_as_stranger(file).write_at(place, wrong);
    const auto ticket = file.read(0, read_.all());
    const auto message = refusal<IoError>([&] { file.wait(ticket); });
    EXPECT_PRED2(contains, message, file.path().string());
    EXPECT_PRED2(contains, message, fmt::format("8192 bytes at byte {}", 3 * kTestBlock));
    EXPECT_PRED2(contains, message, "continues from its newest checkpoint");
    file.wait(file.read(0, read_.part(0, 3 * kTestBlock)));  // the others are right
  }
}

TEST_F(SpillFileTest, ABlockInAnothersPlaceIsFound) {
  SpillFile file(folder_, kTestSize, options_);
  write_all(file, written_);
  open_as_stranger(file).write_at(0, written_.part(kTestBlock, kTestBlock));
  const auto ticket = file.read(0, read_.part(0, kTestBlock));
  EXPECT_THROW(file.wait(ticket), IoError);
}

TEST_F(SpillFileTest, AFileThatIsCutShortIsRefused) {
  for (const auto& way : ways()) {
    SCOPED_TRACE(way.name);
    const WayFolder folder(way);
    SpillFile file(folder.path(), kTestSize, folder.options());
    write_all(file, written_);
    open_as_stranger(file).resize(kTestSize / 2);
    const auto expected = fmt::format("has {} bytes, expected {}", kTestSize / 2, kTestSize);
    const auto reading = refusal<IoError>([&] { file.read(0, read_.part(0, kTestBlock)); });
    EXPECT_PRED2(contains, reading, file.path().string());
    EXPECT_PRED2(contains, reading, expected);
    // It would grow back, with a hole in it.
    const auto writing =
        refusal<IoError>([&] { file.write(kTestSize - kAlignment, written_.part(0, kAlignment)); });
    EXPECT_PRED2(contains, writing, expected);
  }
}

// Cuts the file when it is read from: after the size was looked at.
class DiskWithoutReservations : public FileSystem {
 public:
  int allocate(int, uint64_t) override {
    errno = EOPNOTSUPP;
    return -1;
  }
};

// Blocks that the disk has given to files of this folder which have no name.
uint64_t allocated_bytes(const fs::path& folder) {
  uint64_t sum = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto path = fs::read_symlink(entry.path(), ignored).string();
    struct stat facts{};
    if (path.starts_with(folder.string()) && ::stat(entry.path().c_str(), &facts) == 0) {
      sum += static_cast<uint64_t>(facts.st_blocks) * 512;
    }
  }
  return sum;
}

TEST_F(SpillFileTest, WhereRoomCannotBeReservedItIsWritten) {
  DiskWithoutReservations disk;
  const ScopedFileSystem scope(disk);
  constexpr uint64_t kBytes = (3 << 20) + kAlignment;
  const SpillFile file(folder_, kBytes);
  EXPECT_GE(allocated_bytes(folder_), kBytes);
}

class CuttingDisk : public FileSystem {
 public:
  ssize_t read(int descriptor, std::span<std::byte> out, uint64_t offset) override {
    EXPECT_EQ(truncate(descriptor, kTestSize / 2), 0);
    return FileSystem::read(descriptor, out, offset);
  }
};

TEST_F(SpillFileTest, AnEndBeforeItsPlaceIsNamedWithTheByte) {
  CuttingDisk disk;
  const ScopedFileSystem scope(disk);
  options_.engine = EngineKind::kThreads;
  SpillFile file(folder_, kTestSize, options_);
  const auto message = refusal<IoError>([&] { read_all(file, read_); });
  EXPECT_PRED2(contains, message,
               fmt::format("ended at byte {}, expected {} bytes", kTestSize / 2, kTestSize));
}

// Carries little at a time, is interrupted, asks for patience; fails for good when told to.
class RoughDisk : public FileSystem {
 public:
  ssize_t read(int descriptor, std::span<std::byte> out, uint64_t offset) override {
    if (stumbles()) return -1;
    return FileSystem::read(descriptor, out.first(std::min<size_t>(out.size(), kAlignment)),
                            offset);
  }
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    if (stumbles()) return -1;
    return FileSystem::write(descriptor, bytes.first(std::min<size_t>(bytes.size(), kAlignment)),
                             offset);
  }
  int failure = 0;

 private:
  bool stumbles() {
    errno = failure != 0 ? failure : calls_ % 2 == 0 ? EINTR : EAGAIN;
    return failure != 0 || calls_++ % 3 != 0;
  }
  int calls_ = 0;
};

TEST_F(SpillFileTest, ShortAndInterruptedTransfersAreFinished) {
  RoughDisk disk;
  const ScopedFileSystem scope(disk);
  options_.engine = EngineKind::kThreads;
  options_.depth = 1;
  SpillFile file(folder_, kTestSize, options_);
  write_all(file, written_);
  read_all(file, read_);
  EXPECT_TRUE(equal(written_.all(), read_.all()));
}

// Notes how long requests are, and how many are made at once.
class WatchedDisk final : public FileSystem {
 public:
  ssize_t write(int file, std::span<const std::byte> bytes, uint64_t offset) override {
    {
      const std::scoped_lock lock(mutex_);
      sizes_.insert(bytes.size());
      most_ = std::max(most_, ++now_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // so that others have time to join
    const auto result = FileSystem::write(file, bytes, offset);
    const std::scoped_lock lock(mutex_);
    --now_;
    return result;
  }

  std::set<size_t> sizes() { return std::exchange(sizes_, {}); }
  int most() { return std::exchange(most_, 0); }

 private:
  std::mutex mutex_;
  std::set<size_t> sizes_;
  int now_ = 0, most_ = 0;
};

TEST_F(SpillFileTest, RequestsAreAsLargeAndAsManyAsAskedFor) {
  WatchedDisk disk;
  const ScopedFileSystem scope(disk);
  options_.engine = EngineKind::kThreads;
  options_.depth = 2;
  const auto write = [&] {
    SpillFile file(folder_, kTestSize, options_);
    write_all(file, written_);
    std::memset(read_.all().data(), 0, kTestSize);
    read_all(file, read_);
    EXPECT_TRUE(equal(written_.all(), read_.all()));
  };
  write();
  EXPECT_EQ(disk.sizes(), std::set<size_t>{kTestSize});
  EXPECT_EQ(disk.most(), 1);
  options_.request_bytes = 2 * kTestBlock - 1;  // rounded up
  write();
  EXPECT_EQ(disk.sizes(), (std::set<size_t>{2 * kTestBlock, kAlignment}));
  EXPECT_LE(disk.most(), 2);
  options_.request_bytes = 1;
  options_.threads = 1;
  write();
  EXPECT_EQ(disk.sizes(), std::set<size_t>{kAlignment});
  EXPECT_EQ(disk.most(), 1);
}

TEST_F(SpillFileTest, SmallRequestsOfIoUringAreOneTransfer) {
  options_.request_bytes = kAlignment;
  options_.depth = 3;
  SpillFile file(folder_, kTestSize, options_);
  write_all(file, written_);
  read_all(file, read_);
  EXPECT_TRUE(equal(written_.all(), read_.all()));
  open_as_stranger(file).resize(kTestSize - kTestBlock);
  EXPECT_PRED2(contains, refusal<IoError>([&] { read_all(file, read_); }), "cut short");
}

TEST_F(SpillFileTest, AFailureNamesFileOffsetAndReason) {
  RoughDisk disk;
  const ScopedFileSystem scope(disk);
  options_.engine = EngineKind::kThreads;
  SpillFile file(folder_, kTestSize, options_);
  disk.failure = EIO;
  const auto reading =
      refusal<IoError>([&] { file.wait(file.read(kTestBlock, read_.part(0, kTestBlock))); });
  EXPECT_PRED2(contains, reading,
               fmt::format("cannot read 8192 bytes at byte 8192 of {}: Input/output error",
                           file.path().string()));
  disk.failure = ENOSPC;
  EXPECT_THROW(file.wait(file.write(0, written_.part(0, kTestBlock))), DiskFull);
}

TEST_F(SpillFileTest, MisuseIsAnInternalError) {
  SpillFile file(folder_, kTestSize, options_);
  EXPECT_THROW(file.read(kAlignment, read_.part(0, kTestBlock)),
               InternalError);                                                   // no block's begin
  EXPECT_THROW(file.read(0, read_.part(0, kAlignment)), InternalError);          // half a block
  EXPECT_THROW(file.read(0, read_.part(512, kTestBlock)), InternalError);        // not aligned
  EXPECT_THROW(file.read(kTestSize, read_.part(0, kTestBlock)), InternalError);  // beyond the end
  const auto ticket = file.write(0, written_.part(0, kTestBlock));
  EXPECT_THROW(file.read(0, read_.part(0, kTestBlock)), InternalError);  // under way
  file.wait(ticket);
  EXPECT_THROW(file.wait(ticket), InternalError);
}

}  // namespace
}  // namespace skein::spill
