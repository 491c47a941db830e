// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/guard.h"

#include <gtest/gtest.h>

#include <system_error>
#include <utility>

#include "skein/core/testing.h"

namespace skein::cli {
namespace {

TEST(Guard, ALimitOnThreadsIsNamed) {
  const auto fail = [](std::errc why) {
    testing::internal::CaptureStderr();
    const int code =
        run_guarded([=]() -> int { throw std::system_error(std::make_error_code(why)); });
    return std::pair(code, testing::internal::GetCapturedStderr());
  };
  const auto [code, said] = fail(std::errc::resource_unavailable_try_again);  // of std::thread
  EXPECT_EQ(code, 4);
  EXPECT_PRED2(contains, said, "the limit on processes and threads is reached");
  EXPECT_EQ(fail(std::errc::invalid_argument).first, 1);
}

}  // namespace
}  // namespace skein::cli
