// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/system_failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/file_system.h"

namespace skein {
namespace {

// Time passes at once.
class Clockless final : public FileSystem {
 public:
  std::chrono::milliseconds waited{0};
  void pause(std::chrono::milliseconds duration) override { waited += duration; }
};

// The error of `failures` attempts, then success. Returns how many attempts were made.
int attempts_until_done(int failures, int error) {
  int attempts = 0;
  try_again([&] {
    if (attempts++ >= failures) return;
    errno = error;
    throw_errno("cannot open x");
  });
  return attempts;
}

TEST(SystemFailureTest, WhatMayPassIsTriedAgainWithABound) {
  Clockless clockless;
  const ScopedFileSystem scope(clockless);
  for (const int error : {ESTALE, EIO, ETIMEDOUT, EINTR}) {
    EXPECT_EQ(attempts_until_done(0, error), 1);
    EXPECT_EQ(attempts_until_done(4, error), 5);
    EXPECT_THROW(attempts_until_done(5, error), SystemFailure);
  }
  clockless.waited = std::chrono::milliseconds(0);
  EXPECT_THROW(attempts_until_done(9, ESTALE), IoError);
  EXPECT_LE(clockless.waited, std::chrono::seconds(5));
}

TEST(SystemFailureTest, WhatStaysIsThrownAtOnce) {
  Clockless clockless;
  const ScopedFileSystem scope(clockless);
  for (const int error : {ENOENT, EACCES}) {
    EXPECT_THROW(attempts_until_done(1, error), SystemFailure);
  }
  EXPECT_THROW(attempts_until_done(1, ENOSPC), DiskFull);
  EXPECT_EQ(clockless.waited.count(), 0);
}

TEST(SystemFailureTest, ItCarriesTheErrorOfTheCall) {
  try {
    read_file("/there/is/no/such");
    FAIL();
  } catch (const SystemFailure& failure) {
    EXPECT_TRUE(says_absent(failure.code));
    EXPECT_FALSE(may_pass(failure.code));
  }
}

}  // namespace
}  // namespace skein
