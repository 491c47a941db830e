// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "skein/core/error.h"

namespace skein {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "skein-file-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

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
  try {
    file.read_at(0, buffer);
    FAIL() << "a short file was read as a long one";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("short"), std::string::npos) << error.what();
  }
}

TEST_F(FileTest, LimitsAndFoldersAreRefused) {
  write_file_atomically(folder_ / "a", "12345");
  EXPECT_THROW(read_file(folder_ / "a", 4), IoError);
  EXPECT_THROW(read_file(folder_), IoError);
  EXPECT_THROW(read_file(folder_ / "absent"), IoError);
}

TEST_F(FileTest, SymlinkIsReplaced) {
  replace_symlink(folder_ / "latest", "one");
  replace_symlink(folder_ / "latest", "two");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "two");
}

}  // namespace
}  // namespace skein
