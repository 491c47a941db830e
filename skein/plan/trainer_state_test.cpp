// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/trainer_state.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace skein::plan {
namespace {

using nlohmann::ordered_json;

ordered_json log_of(const std::vector<double>& losses, int64_t first_step = 1) {
  auto history = ordered_json::array();
  for (const double loss : losses) {
    history.push_back({{"step", first_step}, {"loss", 100.0}});  // training does not count
    history.push_back({{"step", first_step++}, {"eval_loss", loss}});
  }
  return history;
}

bool ends(const std::vector<double>& losses, std::optional<int64_t> patience,
          double threshold = 0) {
  const config::EvalConfig config{.early_stopping_patience = patience,
                                  .early_stopping_threshold = threshold};
  return reason_to_end(config, log_of(losses)).has_value();
}

TEST(EarlyStoppingTest, NeverWithoutPatience) { EXPECT_FALSE(ends({1, 2, 3, 4}, std::nullopt)); }

TEST(EarlyStoppingTest, SoManyInARow) {
  EXPECT_FALSE(ends({}, 1));
  EXPECT_FALSE(ends({5}, 1));
  EXPECT_TRUE(ends({5, 5}, 1));
  EXPECT_FALSE(ends({5, 6}, 2));
  EXPECT_TRUE(ends({5, 6, 7}, 2));
  EXPECT_FALSE(ends({5, 6, 4, 7}, 2)) << "a better one between them";
  EXPECT_TRUE(ends({5, 4, 6, 4.5}, 2)) << "better than the one before is not better than the best";
}

TEST(EarlyStoppingTest, ByMoreThanTheThreshold) {
  EXPECT_TRUE(ends({5, 4.75, 4.5}, 2, 0.25)) << "no more than it";
  EXPECT_FALSE(ends({5, 4.75, 4.25}, 2, 0.25));
  // As in transformers: a small gain moves the best, and the next is measured from there.
  EXPECT_TRUE(ends({5, 4.9, 4.7}, 2, 0.25));
}

TEST(EarlyStoppingTest, WhatIsNoNumberIsNotBetter) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(ends({5, nan, nan}, 2));
  EXPECT_FALSE(ends({nan, 5}, 1)) << "any number is better than none";
  const config::EvalConfig config{.early_stopping_patience = 2};
  const auto reread = ordered_json::parse(log_of({5, nan, nan}).dump());
  EXPECT_TRUE(reason_to_end(config, reread)) << "null in a file";
}

TEST(EarlyStoppingTest, BeforeTheFirstStepIsNoResult) {
  const config::EvalConfig config{.early_stopping_patience = 1};
  EXPECT_FALSE(reason_to_end(config, log_of({1, 2}, 0)));
  EXPECT_TRUE(reason_to_end(config, log_of({1, 2, 2}, 0)));
}

TEST(EarlyStoppingTest, SaysWhy) {
  const config::EvalConfig config{.early_stopping_patience = 2};
  const auto reason = reason_to_end(config, log_of({3, 2.5, 4, 4}));
  ASSERT_TRUE(reason);
  for (const char* part : {"2 evaluations", "early_stopping_patience 2", "2.5000, at step 2"}) {
    EXPECT_NE(reason->find(part), std::string::npos) << *reason;
  }
}

}  // namespace
}  // namespace skein::plan
