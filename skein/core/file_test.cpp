// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/log.h"
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

TEST_F(FileTest, AHeldFolderIsFoundWhateverHasItsName) {
  const auto name = folder_ / "output", beside = folder_ / "output-2";
  fs::create_directories(name);
  fs::create_directories(beside);
  {
    const HeldFolder held(name / "");  // a slash at the end is no other folder
    fs::rename(name, folder_ / "moved");
    fs::create_directories(name);
    write_file_atomically(name / "a", "1");
    make_directories(name / "b/c");
    replace_symlink(name / "latest", "b");
    rename_path(name / "b", name / "d");
    write_file_atomically(beside / "a", "2");
    EXPECT_EQ(read_file(name / "a"), "1");
    EXPECT_TRUE(fs::is_empty(name));
    EXPECT_TRUE(fs::is_directory(folder_ / "moved/d/c"));
    EXPECT_EQ(read_file(beside / "a"), "2");
    fs::remove_all(folder_ / "moved");
    EXPECT_PRED2(contains, refusal<IoError>([&] { write_file_atomically(name / "a", "3"); }),
                 (name / "a").string());
    EXPECT_TRUE(fs::is_empty(name));
  }
  write_file_atomically(name / "a", "4");
  EXPECT_TRUE(fs::exists(name / "a"));
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

// What somebody who may write the folder could have put where we are about to write.
TEST_F(FileTest, NothingIsWrittenThroughALink) {
  const auto victim = write("victim", "kept");
  fs::create_directories(folder_ / "out");
  const auto planted = folder_ / "out" / "planted";
  fs::create_symlink(victim, planted);
  for (const auto open : {&File::open_to_write, &File::open_or_create, &File::open_to_append}) {
    EXPECT_PRED2(contains, refusal<IoError>([&] { open(planted); }), "planted is a link");
  }
  EXPECT_THROW(add_log_file(planted), IoError);
  File::create(planted).write_at(0, std::as_bytes(std::span("x", 1)));
  EXPECT_FALSE(fs::is_symlink(planted));
  EXPECT_EQ(read_file(planted), "x");
  EXPECT_EQ(read_file(victim), "kept");
}

TEST_F(FileTest, ANewFolderIsNoLinkToAnother) {
  make_directories(folder_ / "elsewhere");
  fs::create_symlink("elsewhere", folder_ / "planted");
  EXPECT_THROW(make_new_directory(folder_ / "planted"), IoError);
  make_new_directory(folder_ / "new");
  EXPECT_TRUE(fs::is_directory(folder_ / "new"));
}

TEST_F(FileTest, ALinkThatCannotBeReplacedLeavesNothing) {
  fs::create_directories(folder_ / "latest/mine");
  EXPECT_THROW(replace_symlink(folder_ / "latest", "one"), IoError);
  const auto entries = fs::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(FileTest, APlantedPipeHoldsNobodyUp) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(File::open_to_append(folder_ / "pipe"), IoError);
  EXPECT_THROW(File::open_or_create(folder_ / "pipe"), IoError);
}

// Does everything for real, and keeps the names of files and links that are made.
class NamingFileSystem final : public FileSystem {
 public:
  std::vector<fs::path> made;
  std::vector<int> flags;
  int open(const fs::path& path, int how) override {
    if ((how & O_CREAT) != 0) {
      made.push_back(path);
      flags.push_back(how);
    }
    return FileSystem::open(path, how);
  }
  int make_symlink(const fs::path& target, const fs::path& link) override {
    made.push_back(link);
    return FileSystem::make_symlink(target, link);
  }
};

TEST_F(FileTest, TemporaryNamesCannotBeGuessed) {
  NamingFileSystem naming;
  {
    const ScopedFileSystem scope(naming);
    for (int i = 0; i < 2; ++i) {
      write_file_atomically(folder_ / "a", "x");
      replace_symlink(folder_ / "latest", "a");
    }
  }
  ASSERT_EQ(naming.made.size(), 4U);
  EXPECT_NE(naming.made[0], naming.made[2]);
  EXPECT_NE(naming.made[1], naming.made[3]);
  for (const auto& path : naming.made) {
    const auto name = path.filename().string();
    EXPECT_EQ(name.size() - name.find(".tmp-"), 5U + 16U) << name;
  }
  for (const int flags : naming.flags) {
    EXPECT_EQ(flags & (O_EXCL | O_NOFOLLOW | O_ACCMODE), O_EXCL | O_NOFOLLOW | O_WRONLY);
  }
}

TEST_F(FileTest, ReservedRoomIsTakenFromTheDisk) {
  const auto file = File::create(folder_ / "a");
  file.reserve(1 << 20);
  struct stat info{};
  ASSERT_EQ(::fstat(file.descriptor(), &info), 0);
  EXPECT_EQ(info.st_size, 1 << 20);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
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
