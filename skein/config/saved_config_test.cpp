// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/saved_config.h"

#include <gtest/gtest.h>

namespace skein::config {
namespace {

Resolved loaded(const std::vector<std::string>& words) { return load(words); }

TEST(SavedConfig, WhatARunWritesIsOne) {
  const auto now = loaded({"output_dir=a: b", "learning_rate=3e-4", "report_to=none"});
  EXPECT_TRUE(is_saved_config(to_yaml(now)));
  EXPECT_TRUE(is_saved_config("stage: pt\nseed: 1\ndata_seed: null\nfull_determinism: false\n"));
}

TEST(SavedConfig, WhatAUserWritesIsNot) {
  const auto now = loaded({});
  for (const std::string& text :
       {std::string(), std::string("seed: 1\nlearning_rate: 1e-4\n"), std::string("stage: pt\n"),
        std::string("# mine\n") + to_yaml(now), to_yaml(now, /*with_origins=*/true),
        to_yaml(now) + "\n", std::string("stage: pt\nseed: 1\noptimizer:\n  lr: 1\n")}) {
    EXPECT_FALSE(is_saved_config(text)) << text;
  }
}

TEST(SavedConfig, ChangedKeysAreListedOldAndNew) {
  const auto before = to_yaml(loaded({"learning_rate=1e-3", "max_steps=7", "seed=1"}));
  EXPECT_TRUE(
      changed_keys(before, loaded({"learning_rate=1e-3", "max_steps=7", "seed=1"})).empty());
  EXPECT_EQ(changed_keys(before, loaded({"learning_rate=2e-3", "max_steps=9", "seed=1"})),
            (std::vector<std::string>{"learning_rate: 0.001 → 0.002", "max_steps: 7 → 9"}));
  // A key that the older program did not have is no change.
  EXPECT_TRUE(changed_keys("seed: 42\n", loaded({"max_steps=9"})).empty());
}

}  // namespace
}  // namespace skein::config
