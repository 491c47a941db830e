// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein {
namespace {

using FileTest = TemporaryFolder;

TEST_F(FileTest, AtomicWriteReplacesTheWholeContent) {
  write_file_atomically(folder_ / "a", "first, longer");
  write_file_atomically(folder_ / "a", "second");
  EXPECT_EQ(read_file(folder_ / "a"), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, ReadingPastTheEndNamesTheFile) {
  write_file_atomically(folder_ / "short", "abc");
  const auto file = File::open_to_read(folder_ / "short");
  std::byte buffer[8];
  EXPECT_PRED2(contains, refusal<IoError>([&] { file.read_at(0, buffer); }), "short");
}

TEST_F(FileTest, LimitsAndFoldersAreRefused) {
  write_file_atomically(folder_ / "a", "12345");
  EXPECT_THROW(read_file(folder_ / "a", 4), IoError);
  EXPECT_THROW(read_file(folder_), IoError);
  EXPECT_THROW(read_file(folder_ / "absent"), IoError);
}

TEST_F(FileTest, PipesAndDevicesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(folder_ / "pipe"), IoError);
  EXPECT_THROW(File::open_to_read("/dev/zero"), IoError);
}

TEST_F(FileTest, SymlinkIsReplaced) {
  replace_symlink(folder_ / "latest", "one");
  replace_symlink(folder_ / "latest", "two");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "two");
}

TEST_F(FileTest, TreesAreRemovedAndLinksAreNotFollowed) {
  make_directories(folder_ / "tree/a/b");
  write_file_atomically(folder_ / "kept", "x");
  fs::create_symlink(folder_, folder_ / "tree/a/up");
  remove_tree(folder_ / "tree");
  remove_tree(folder_ / "tree");
  EXPECT_FALSE(fs::exists(folder_ / "tree"));
  EXPECT_TRUE(fs::exists(folder_ / "kept"));
}

TEST_F(FileTest, PathsAreExchanged) {
  write_file_atomically(folder_ / "a", "1");
  write_file_atomically(folder_ / "b", "2");
  if (!exchange_paths(folder_ / "a", folder_ / "b")) GTEST_SKIP() << "not on this file system";
  EXPECT_EQ(read_file(folder_ / "a"), "2");
  EXPECT_EQ(read_file(folder_ / "b"), "1");
  EXPECT_FALSE(exchange_paths(folder_ / "a", folder_ / "absent"));
}

class CountingFileSystem final : public FileSystem {
 public:
  int num_syncs = 0;
  int error = 0;
  int sync(int) override {
    ++num_syncs;
    errno = error;
    return error == 0 ? 0 : -1;
  }
};

TEST_F(FileTest, NewFoldersAreSyncedAndFailuresAreErrors) {
  CountingFileSystem counting;
  const ScopedFileSystem scope(counting);
  make_directories(folder_ / "a/b/c");
  EXPECT_EQ(counting.num_syncs, 3);
  make_directories(folder_ / "a/b/c");
  EXPECT_EQ(counting.num_syncs, 3);
  counting.error = EIO;
  EXPECT_THROW(write_file_atomically(folder_ / "f", "x"), IoError);
  EXPECT_EQ(counting.num_syncs, 4);  // not tried again
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace skein
