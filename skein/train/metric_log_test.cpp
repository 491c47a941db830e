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

TEST(MetricLog, LossesOfStepsThatWereLeftOutDoNotCount) {
  MetricLog log{MetricOptions{}};
  log.add_step(1, update_of(2, 1), 10);
  log.add_step(2, update_of(kNan, kNan), 10);
  log.add_step(3, update_of(7, std::numeric_limits<double>::infinity()), 10);
  log.add_step(4, update_of(3, 1), 10);
  EXPECT_EQ(log.take_loss_share(), 2.5);
  EXPECT_EQ(log.num_tokens_seen(), 40);
  log.add_step(5, update_of(4, 1), 10);
  EXPECT_EQ(log.take_loss_share(), 4);
  log.add_step(6, update_of(kNan, kNan), 10);
  EXPECT_TRUE(std::isnan(log.take_loss_share()));
}

}  // namespace
}  // namespace skein::train
