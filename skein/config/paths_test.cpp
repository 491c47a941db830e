// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/paths.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::config {
namespace {

class PathsTest : public testing::Test {
 protected:
  PathsTest() : home_(::getenv("HOME") == nullptr ? "" : ::getenv("HOME")) {
    ::setenv("HOME", "/srv/me", 1);
    ::setenv("SKEIN_TEST_RUNS", "/data/runs", 1);
  }
  ~PathsTest() override {
    ::setenv("HOME", home_.c_str(), 1);
    ::unsetenv("SKEIN_TEST_RUNS");
  }

  std::string home_;
};

TEST_F(PathsTest, HomeAndVariables) {
  EXPECT_EQ(expanded_path("~", {}), "/srv/me");
  EXPECT_EQ(expanded_path("~/out", {}), "/srv/me/out");
  EXPECT_EQ(expanded_path("$HOME/out", {}), "/srv/me/out");
  EXPECT_EQ(expanded_path("${SKEIN_TEST_RUNS}/a$SKEIN_TEST_RUNS", {}), "/data/runs/a/data/runs");
  EXPECT_EQ(expanded_path(std::string("~") + ::getpwuid(::getuid())->pw_name + "/x", {}),
            std::string(::getpwuid(::getuid())->pw_dir) + "/x");
}

TEST_F(PathsTest, WhatOnlyLooksLikeThemStays) {
  for (const char* text : {"", "out", "a~/b", "/x/~", "~no-such-user-here/x", "cost$5", "a$", "$",
                           "${", "${}", "${HOME", "a$/b"}) {
    EXPECT_EQ(expanded_path(text, {}), text);
  }
}

TEST_F(PathsTest, AVariableThatIsNotSetIsNamed) {
  const auto message = refusal<UserError>([] { expanded_path("$SKEIN_NOT_SET/out", {}); });
  EXPECT_PRED2(contains, message, "$SKEIN_NOT_SET, which is not set");
}

TEST_F(PathsTest, InFilesAndOnTheCommandLine) {
  const auto file =
      load_text("output_dir: ~/out\ntrain_file: $HOME/t.txt\nrun_name: ~x\n", "c.yaml");
  EXPECT_EQ(file.config.checkpoint.output_dir, "/srv/me/out");
  EXPECT_EQ(file.config.data.train_file, "/srv/me/t.txt");
  EXPECT_EQ(file.config.log.run_name, "~x");
  const std::vector<std::string> words = {"model_name_or_path=~/m",
                                          "resume_from_checkpoint=${SKEIN_TEST_RUNS}/checkpoint-4"};
  const auto line = load(words);
  EXPECT_EQ(line.config.model.model_name_or_path, "/srv/me/m");
  EXPECT_EQ(line.config.checkpoint.resume_from_checkpoint, "/data/runs/checkpoint-4");
}

}  // namespace
}  // namespace skein::config
