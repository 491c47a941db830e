// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/direct_file.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein::spill {
namespace {

constexpr size_t kPiece = size_t{4} << 20;

std::string some_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251 + i / 65521);
  return bytes;
}

// What passes the page cache by, and a disk that does less than it is asked.
class WatchedDisk : public FileSystem {
 public:
  ssize_t read(int descriptor, std::span<std::byte> out, uint64_t offset) override {
    if (refuses(descriptor, direct_read, out.size())) return -1;
    return FileSystem::read(descriptor, out.first(std::min(out.size(), most)), offset);
  }
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    if (full) {
      errno = ENOSPC;
      return -1;
    }
    if (refuses(descriptor, direct_written, bytes.size())) return -1;
    return FileSystem::write(descriptor, bytes.first(std::min(bytes.size(), most)), offset);
  }
  void pause(std::chrono::milliseconds) override {}

  bool takes_direct = true;
  std::atomic<bool> full = false;
  size_t most = SIZE_MAX;  // bytes of a call
  std::atomic<size_t> direct_read = 0, direct_written = 0;

 private:
  bool refuses(int descriptor, std::atomic<size_t>& direct, size_t bytes) const {
    if ((::fcntl(descriptor, F_GETFL) & O_DIRECT) == 0) return false;
    direct += std::min(bytes, most);
    if (!takes_direct) errno = EINVAL;
    return !takes_direct;
  }
};

class DirectFileTest : public TemporaryFolder {
 protected:
  // A file of `bytes` from `begin` on, behind other bytes; appended in steps of `step`.
  void expect_written(uint64_t begin, const std::string& bytes, size_t step) {
    const auto path = folder_ / "file";
    {
      const auto file = File::create(path);
      const std::string before(begin, 'b');
      file.write_at(0, std::as_bytes(std::span(before)));
      RunWriter writer(file, begin);
      for (size_t i = 0; i < bytes.size(); i += step) {
        writer.append(std::as_bytes(std::span(bytes)).subspan(i, std::min(step, bytes.size() - i)));
      }
      writer.finish();
      EXPECT_EQ(::fcntl(file.descriptor(), F_GETFL) & O_DIRECT, 0);
    }
    EXPECT_TRUE(read_file(path) == std::string(begin, 'b') + bytes)
        << begin << " " << bytes.size() << " " << step;
  }

  void expect_read(const std::string& bytes, uint64_t offset, uint64_t count) {
    const auto run = read_run(File::open_to_read(folder_ / "file"), offset, count);
    EXPECT_TRUE(
        std::ranges::equal(run.bytes, std::as_bytes(std::span(bytes)).subspan(offset, count)))
        << offset << " " << count;
  }

  // On the disk of the build: a folder in memory may have no pages to pass by.
  bool has_direct() const {
    const auto file = File::create(folder_ / "probe");
    return ::fcntl(file.descriptor(), F_SETFL, O_DIRECT) == 0;
  }

  WatchedDisk disk_;
};

TEST_F(DirectFileTest, ARunBeginsAndEndsAnywhere) {
  const ScopedFileSystem scope(disk_);
  for (const uint64_t begin : {0, 1, 4095, 4096, 4097, 10'000}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'000}, kPiece - 1,
                              kPiece, kPiece + 4097, 2 * kPiece + 5}) {
      expect_written(begin, some_bytes(size), 1 << 20);
    }
  }
  expect_written(77, some_bytes(3 * kPiece), 3 * kPiece);
  expect_written(77, some_bytes(kPiece + 999), 1237);
  if (has_direct()) EXPECT_GT(disk_.direct_written, 10 * kPiece);
}

TEST_F(DirectFileTest, ARunIsReadFromAnywhere) {
  const auto bytes = some_bytes(300'001);
  write("file", bytes);
  const ScopedFileSystem scope(disk_);
  for (const uint64_t offset : {0, 1, 4095, 4096, 8193}) {
    for (const uint64_t count : {0, 1, 5000, 70'000, 200'000}) expect_read(bytes, offset, count);
    expect_read(bytes, offset, bytes.size() - offset);
  }
  if (has_direct()) EXPECT_GT(disk_.direct_read, 1'000'000U);
}

TEST_F(DirectFileTest, MemoryIsTakenAgain) {
  const auto bytes = some_bytes(300'000);
  const auto file = File::open_to_read(write("file", bytes));
  const auto shelf = std::make_shared<PageShelf>();
  const std::byte* first = nullptr;
  {
    const auto run = read_run(file, 5, 200'000, shelf);
    first = run.memory.data();
    const auto other = read_run(file, 9, 200'000, shelf);
    EXPECT_NE(other.memory.data(), first);
  }
  EXPECT_EQ(shelf->take(10 << 20).first, nullptr) << "of that size there was none";
  auto again = read_run(file, 7, 100'000, shelf), more = read_run(file, 8, 100'000, shelf);
  EXPECT_TRUE(again.memory.data() == first || more.memory.data() == first);
  EXPECT_TRUE(std::ranges::equal(again.bytes, std::as_bytes(std::span(bytes)).subspan(7, 100'000)));
  EXPECT_TRUE(std::ranges::equal(more.bytes, std::as_bytes(std::span(bytes)).subspan(8, 100'000)));
  again.memory = PagedMemory();
  EXPECT_NE(shelf->take(1).first, nullptr) << "when it is given up, and not before";
  EXPECT_EQ(shelf->take(1).first, nullptr);
}

TEST_F(DirectFileTest, AFileThatEndsTooEarlyIsRefused) {
  write("file", some_bytes(100'000));
  const auto file = File::open_to_read(folder_ / "file");
  for (const uint64_t count : {100'001, 110'000, 200'000}) {
    EXPECT_PRED2(contains, refusal<IoError>([&] { read_run(file, 0, count); }), "too early");
  }
  EXPECT_THROW(read_run(file, 90'000, 70'000), IoError);
}

TEST_F(DirectFileTest, WhereTheFileSystemRefusesThePageCacheServes) {
  disk_.takes_direct = false;
  const ScopedFileSystem scope(disk_);
  const auto bytes = some_bytes(2 * kPiece + 5000);
  expect_written(1000, bytes, 1 << 20);
  expect_read(std::string(1000, 'b') + bytes, 500, bytes.size());
}

TEST_F(DirectFileTest, ShortTransfersGoOn) {
  disk_.most = 8192;
  const ScopedFileSystem scope(disk_);
  const auto bytes = some_bytes(300'000);
  expect_written(5000, bytes, 70'000);
  expect_read(std::string(5000, 'b') + bytes, 3, bytes.size());
}

TEST_F(DirectFileTest, AFullDiskIsToldToWhoeverAppends) {
  const ScopedFileSystem scope(disk_);
  const auto file = File::create(folder_ / "file");
  const auto bytes = some_bytes(kPiece);
  {
    RunWriter writer(file, 0);
    writer.append(std::as_bytes(std::span(bytes)));
    disk_.full = true;
    EXPECT_THROW(
        {
          for (int i = 0; i < 3; ++i) writer.append(std::as_bytes(std::span(bytes)));
        },
        DiskFull);
  }
  RunWriter writer(file, 0);
  writer.append(std::as_bytes(std::span(bytes)).first(10));
  EXPECT_THROW(writer.finish(), DiskFull);
}

}  // namespace
}  // namespace skein::spill
