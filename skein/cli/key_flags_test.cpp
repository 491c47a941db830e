// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/key_flags.h"

#include <gtest/gtest.h>

#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::cli {
namespace {

std::string why_refused(const std::vector<std::string>& arguments) {
  return skein::refusal<UserError>([&] { check_flags(arguments); });
}

TEST(KeyFlags, KeysAndOtherWordsPass) {
  check_flags(std::vector<std::string>{"c.yaml", "--learning_rate", "1", "--learning-rate=1",
                                       "--lr", "1", "--bf16", "key=value"});
}

TEST(KeyFlags, AnythingElseIsRefusedInTheSpellingThatWasTyped) {
  EXPECT_NE(why_refused({"--learning-rat=1"}).find("--learning-rate"), std::string::npos);
  EXPECT_NE(why_refused({"--learning_rat=1"}).find("--learning_rate"), std::string::npos);
  EXPECT_NE(why_refused({"--num-gpu"}).find("--num-gpus"), std::string::npos);
  EXPECT_NE(why_refused({"--secret_fil"}).find("--secret_file"), std::string::npos);
}

}  // namespace
}  // namespace skein::cli
