// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/metric_log.h"

#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace skein::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Update update_of(double loss, double norm) {
  Update update;
  update.loss = at::scalar_tensor(loss, at::kDouble);
  update.norm.norm = at::scalar_tensor(norm, at::kDouble);
  return update;
}

const std::vector<int64_t> kTenTokens{4, 6};

TEST(MetricLog, LossesOfStepsThatWereLeftOutDoNotCount) {
  MetricLog log{MetricOptions{}};
  log.add_step(1, update_of(2, 1), kTenTokens);
  log.add_step(2, update_of(kNan, kNan), kTenTokens);
  log.add_step(3, update_of(7, std::numeric_limits<double>::infinity()), kTenTokens);
  log.add_step(4, update_of(3, 1), kTenTokens);
  EXPECT_EQ(log.take_loss_share(), 2.5);
  EXPECT_EQ(log.num_tokens_seen(), 40);
  log.add_step(5, update_of(4, 1), kTenTokens);
  EXPECT_EQ(log.take_loss_share(), 4);
  log.add_step(6, update_of(kNan, kNan), kTenTokens);
  EXPECT_TRUE(std::isnan(log.take_loss_share()));
}

TEST(MetricLog, AFiniteLossCountsAlthoughItsGradientWasNot) {
  MetricLog log{MetricOptions{}};
  const auto overflown = update_of(7, std::numeric_limits<double>::infinity());
  log.add_step(1, update_of(2, 1), kTenTokens);
  log.add_step(2, overflown, kTenTokens);
  log.add_loss(overflown.loss);
  log.add_step(3, update_of(kNan, kNan), kTenTokens);
  EXPECT_EQ(log.take_loss_share(), 4.5);
  log.add_step(4, overflown, kTenTokens);
  log.add_loss(overflown.loss);
  EXPECT_EQ(log.take_loss_share(), 7);
}

// What a document costs depends on its own length, not on that of the longest row.
TEST(MetricLog, UtilisationCountsTheDocumentsThatWereRead) {
  MetricLog log{
      MetricOptions{.flops_of = [](int64_t tokens) { return static_cast<double>(tokens * tokens); },
                    .peak_flops = 1e9}};
  log.add_step(1, update_of(2, 1), std::vector<int64_t>{10, 20});
  log.add_step(2, update_of(2, 1), std::vector<int64_t>{30});
  log.write({.step = 2, .loss = 2});
  const auto& record = log.history().back();
  EXPECT_EQ(record.at("num_input_tokens_seen"), 60);
  // Both are shares of the same seconds.
  EXPECT_NEAR(record.at("mfu").get<double>() * 1e9 / record.at("tokens_per_second").get<double>(),
              (100 + 400 + 900) / 60.0, 1e-9);
}

}  // namespace
}  // namespace skein::train
