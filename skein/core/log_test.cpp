// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "skein/core/log_writer.h"

namespace skein {
namespace {

// In a process of its own: what the log writes to stays open.
[[noreturn]] void log_to_full_disk(int rank) {
  int warnings = 0;
  set_log_rank(rank);
  set_log_writer(
      [&](std::string_view line) { warnings += line.find("File too large") != line.npos; });
  for (int i = 0; i < 2; ++i) {
    char path[] = "/tmp/skein-log-XXXXXX";
    close(mkstemp(path));
    add_log_file(path);
    unlink(path);
  }
  const rlimit nothing{};  // a file that may not grow is as good as a full disk
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &nothing);
  for (int i = 0; i < 1000; ++i) log_info("line {} of a run that goes on", i);
  _exit(10 + warnings);
}

TEST(Log, ControlCharactersAreShownNotObeyed) {
  std::string said;
  set_log_writer([&](std::string_view line) { said += line; });
  log_warning("{}", "a\x1b]0;title\x07\x1b[2J\x7f\xc2\x9b\r b\n\tc é 名");
  set_log_writer({});
  EXPECT_EQ(said, "warning: a\\x1b]0;title\\x07\\x1b[2J\\x7f\\x9b\\x0d b\n\tc é 名\n");
}

TEST(Log, AFullDiskGivesOneWarning) {
  EXPECT_EXIT(log_to_full_disk(0), testing::ExitedWithCode(11), "");
  EXPECT_EXIT(log_to_full_disk(1), testing::ExitedWithCode(10), "");  // rank 0 says it
}

[[noreturn]] void log_to_removed_files(int rank) {
  int warnings = 0;
  set_log_rank(rank);
  set_log_writer(
      [&](std::string_view line) { warnings += line.find(" was removed") != line.npos; });
  for (int i = 0; i < 2; ++i) {
    char path[] = "/tmp/skein-log-XXXXXX";
    close(mkstemp(path));
    add_log_file(path);
    log_info("kept");
    if (warnings > i) _exit(1);
    unlink(path);
  }
  for (int i = 0; i < 10; ++i) log_info("lost");
  _exit(10 + warnings);
}

TEST(Log, ARemovedFileGivesOneWarning) {
  EXPECT_EXIT(log_to_removed_files(0), testing::ExitedWithCode(11), "");
  EXPECT_EXIT(log_to_removed_files(1), testing::ExitedWithCode(10), "");
}

TEST(Log, FilesGetEveryLineOfEveryRank) {
  char path[] = "/tmp/skein-log-XXXXXX";
  close(mkstemp(path));
  EXPECT_EXIT(
      {
        set_log_rank(3);
        add_log_file(path);
        log_info("quiet");
        log_warning("loud");
        _exit(7);
      },
      testing::ExitedWithCode(7), "^\\[rank 3\\] warning: loud\n$");
  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_TRUE(first.ends_with("Z quiet")) << first;
  EXPECT_TRUE(second.ends_with("Z warning: loud")) << second;
  unlink(path);
}

}  // namespace
}  // namespace skein
