// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/words.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::cli {
namespace {

std::string why_refused(const std::vector<std::string>& words) {
  try {
    check_flags(words, {"num-gpus"});
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Words, KeysFlagsAndOtherWordsPass) {
  EXPECT_EQ(why_refused({"c.yaml", "--learning_rate", "1", "--learning-rate=1", "--lr", "1",
                         "--bf16", "--num_gpus=2", "key=value"}),
            "accepted");
}

TEST(Words, AnythingElseIsRefusedInTheSpellingThatWasTyped) {
  EXPECT_NE(why_refused({"--learning-rat=1"}).find("--learning-rate"), std::string::npos);
  EXPECT_NE(why_refused({"--learning_rat=1"}).find("--learning_rate"), std::string::npos);
  EXPECT_NE(why_refused({"--num-gpu"}).find("--num-gpus"), std::string::npos);
}

TEST(Words, HelpIsAskedForInTwoWays) {
  EXPECT_TRUE(asks_for_help(std::vector<std::string>{"show", "-h"}));
  EXPECT_FALSE(asks_for_help(std::vector<std::string>{"help"}));
}

}  // namespace
}  // namespace skein::cli
