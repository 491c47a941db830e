// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/metric_log.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "skein/comm/group.h"

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

double mean_loss(MetricLog& log) {
  comm::Group alone;
  return log.take_means(alone).loss;
}

TEST(MetricLog, LossesOfStepsThatWereLeftOutDoNotCount) {
  MetricLog log{MetricOptions{}};
  log.add_step(1, update_of(2, 1), kTenTokens);
  log.add_step(2, update_of(kNan, kNan), kTenTokens);
  log.add_step(3, update_of(7, std::numeric_limits<double>::infinity()), kTenTokens);
  log.add_step(4, update_of(3, 1), kTenTokens);
  EXPECT_EQ(mean_loss(log), 2.5);
  EXPECT_EQ(log.num_tokens_seen(), 40);
  log.add_step(5, update_of(4, 1), kTenTokens);
  EXPECT_EQ(mean_loss(log), 4);
  log.add_step(6, update_of(kNan, kNan), kTenTokens);
  EXPECT_TRUE(std::isnan(mean_loss(log)));
}

TEST(MetricLog, AFiniteLossCountsAlthoughItsGradientWasNot) {
  MetricLog log{MetricOptions{}};
  const auto overflown = update_of(7, std::numeric_limits<double>::infinity());
  log.add_step(1, update_of(2, 1), kTenTokens);
  log.add_step(2, overflown, kTenTokens);
  log.add_loss(overflown);
  log.add_step(3, update_of(kNan, kNan), kTenTokens);
  EXPECT_EQ(mean_loss(log), 4.5);
  log.add_step(4, overflown, kTenTokens);
  log.add_loss(overflown);
  EXPECT_EQ(mean_loss(log), 7);
}

// Two steps of two samples each, one that was left out, one whose gradient alone was.
TEST(MetricLog, MetricsAreThoseOfTheStepsThatCount) {
  const std::vector<algorithms::Metric> metrics{{"accuracy"},
                                                {"worst", algorithms::Metric::Kind::kLeast}};
  const auto with = [&](Update update, double sum, double least) {
    update.metrics = algorithms::MetricSums(metrics);
    update.metrics.add(
        {at::tensor({sum, least}, at::kDouble), at::tensor({2.0, 2.0}, at::kDouble)});
    return update;
  };
  MetricLog log{MetricOptions{.metrics = metrics}};
  log.add_step(1, with(update_of(2, 1), 1, -3), kTenTokens);
  log.add_step(2, with(update_of(kNan, kNan), kNan, -9), kTenTokens);
  const auto overflown = with(update_of(4, kNan), 2, -1);
  log.add_step(3, overflown, kTenTokens);
  log.add_loss(overflown);
  comm::Group alone;
  auto means = log.take_means(alone);
  EXPECT_EQ(means.loss, 3);
  EXPECT_EQ(means.metrics, (algorithms::NamedNumbers{{"accuracy", 0.75}, {"worst", -3}}));
  log.write({.step = 3, .means = means});
  EXPECT_EQ(log.history().back().at("accuracy"), 0.75);

  log.add_step(4, with(update_of(1, 1), 2, 5), kTenTokens);
  means = log.take_means(alone);
  EXPECT_EQ(means.metrics, (algorithms::NamedNumbers{{"accuracy", 1}, {"worst", 5}}));
}

TEST(MetricLog, PerplexityIsOfTokensAlone) {
  MetricLog log{MetricOptions{}};
  log.write(1, 0.5, {.loss = 2, .num_samples = 4, .seconds = 1, .metrics = {{"accuracy", 0.5}}});
  EXPECT_FALSE(log.history().back().contains("eval_perplexity"));
  EXPECT_EQ(log.history().back().at("eval_accuracy"), 0.5);
  log.write(2, 1, {.loss = 2, .num_samples = 4, .seconds = 1, .perplexity = 7.4});
  EXPECT_EQ(log.history().back().at("eval_perplexity"), 7.4);
}

// What a document costs depends on its own length, not on that of the longest row.
TEST(MetricLog, UtilisationCountsTheDocumentsThatWereRead) {
  MetricLog log{
      MetricOptions{.flops_of = [](int64_t tokens) { return static_cast<double>(tokens * tokens); },
                    .peak_flops = 1e9}};
  log.add_step(1, update_of(2, 1), std::vector<int64_t>{10, 20});
  log.add_step(2, update_of(2, 1), std::vector<int64_t>{30});
  log.write({.step = 2, .means = {.loss = 2}});
  const auto& record = log.history().back();
  EXPECT_EQ(record.at("num_input_tokens_seen"), 60);
  // Both are shares of the same seconds.
  EXPECT_NEAR(record.at("mfu").get<double>() * 1e9 / record.at("tokens_per_second").get<double>(),
              (100 + 400 + 900) / 60.0, 1e-9);
}

// A prompt of six tokens before both: read twice, computed once.
TEST(MetricLog, UtilisationCountsSharedPromptsOnce) {
  MetricLog log{
      MetricOptions{.flops_of = [](int64_t tokens) { return static_cast<double>(tokens * tokens); },
                    .peak_flops = 1e9}};
  log.add_step(1, update_of(2, 1), std::vector<int64_t>{10, 20}, std::vector<int64_t>{6});
  log.write({.step = 1, .means = {.loss = 2}});
  const auto& record = log.history().back();
  EXPECT_EQ(record.at("num_input_tokens_seen"), 30);
  EXPECT_NEAR(record.at("mfu").get<double>() * 1e9 / record.at("tokens_per_second").get<double>(),
              (100 + 400 - 36) / 30.0, 1e-9);
}

}  // namespace
}  // namespace skein::train
