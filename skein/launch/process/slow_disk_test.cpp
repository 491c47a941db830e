// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/slow_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;

TEST(SlowDiskTest, WorkApartIsAsGoodAsWorkHere) {
  const auto folder = make_temporary_folder("slow_disk");
  std::string text;
  pid_t worker = 0;
  run_apart([&] {
    worker = getpid();
    std::ofstream(folder / "file") << "written";
    std::ifstream(folder / "file") >> text;
  });
  EXPECT_EQ(text, "written");
  EXPECT_NE(worker, getpid());
  EXPECT_EQ(waitpid(worker, nullptr, WNOHANG), -1) << "it was waited for";
  fs::remove_all(folder);
}

TEST(SlowDiskTest, WhatItThrowsArrives) {
  EXPECT_EQ(refusal<IoError>([] { run_apart([] { throw IoError("the disk is full"); }); }),
            "the disk is full");
  EXPECT_THROW(try_for(milliseconds(60'000), [] { return std::stoi("no number"); }),
               std::invalid_argument);
}

TEST(SlowDiskTest, WhatIsDoneInTimeIsReturned) {
  EXPECT_EQ(try_for(milliseconds(60'000), [] { return 7; }), 7);
}

// A process whose disk does not answer ends, and who reads its output sees the end of that.
TEST(SlowDiskTest, WhoWaitsInVainEnds) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t waiter = fork();
  if (waiter == 0) {
    const auto done = try_for(milliseconds(50), [] {
      run_apart([] { pause(); });
      return true;
    });
    _exit(done ? 1 : 7);
  }
  close(ends[1]);
  int status = 0;
  waitpid(waiter, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace skein::launch
