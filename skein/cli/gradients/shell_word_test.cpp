// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/gradients/shell_word.h"

#include <gtest/gtest.h>

namespace skein::cli {
namespace {

TEST(ShellWord, IsQuotedWhereAShellWouldReadSomethingElse) {
  EXPECT_EQ(shell_word("warm/checkpoint-2"), "warm/checkpoint-2");
  EXPECT_EQ(shell_word("my runs/a"), "'my runs/a'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace skein::cli
