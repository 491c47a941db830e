// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace skein::plan {
namespace {

constexpr double kRoot = 4096, kBlock = 1024;
constexpr int64_t kBlocks = 4;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// An embedding, four blocks; `frozen` of the blocks do not train, nor does the embedding then.
Shapes shapes_of(int64_t frozen = 0) {
  Shapes shapes{.units = {{"root", true}}};
  const auto add = [&](double size, bool trains) {
    shapes.parameters.push_back({.name = "w",
                                 .shape = {static_cast<int64_t>(size)},
                                 .unit = static_cast<int>(shapes.units.size()) - 1,
                                 .trainable = trains});
  };
  add(kRoot, frozen == 0);
  for (int64_t i = 0; i < kBlocks; ++i) {
    shapes.units.push_back({"block"});
    add(kBlock, i >= frozen);
  }
  return shapes;
}

StepTraffic traffic_of(int stage, int64_t micro_batches = 1) {
  return step_traffic(shapes_of(), stage, micro_batches, {.weights = 1, .gradients = 1});
}

constexpr Work kWork{.forward = 1, .backward = 2, .update = 0.25};

StepTime time_of(int stage, int64_t micro_batches, const WorldShape& world, const Links& links,
                 const Work& work = kWork) {
  return step_time(work, traffic_of(stage, micro_batches), world, links);
}

// The table of ARCHITECTURE.md, elements that are sent; stage 2 sends roots' gradients once.
TEST(StepTraffic, IsThatOfTheFormulas) {
  const double blocks = kBlocks * kBlock, all = kRoot + blocks;
  for (const int64_t k : {1, 4}) {
    const auto times = static_cast<double>(k);
    EXPECT_EQ(traffic_of(0, k).bytes(), 2 * all);
    EXPECT_EQ(traffic_of(1, k).bytes(), 2 * all);
    EXPECT_EQ(traffic_of(2, k).bytes(), times * blocks + kRoot + all);
    EXPECT_EQ(traffic_of(3, k).bytes(), 3 * times * blocks + 2 * kRoot - times * kBlock);
  }
}

TEST(StepTraffic, AFrozenBeginningIsGatheredOnceAndNeverSummed) {
  const double frozen = 2 * kBlock, trains = 2 * kBlock;
  const auto traffic = [&](int stage) {
    return step_traffic(shapes_of(2), stage, 1, {.weights = 1, .gradients = 1}).bytes();
  };
  EXPECT_EQ(traffic(0), 2 * trains);
  EXPECT_EQ(traffic(2), 2 * trains);
  // The root once, all blocks forward, the third backward, sums of the two that train.
  EXPECT_EQ(traffic(3), kRoot + frozen + trains + kBlock + trains);
}

TEST(StepTraffic, GradientsAndWeightsHaveTheirOwnWidth) {
  const auto traffic = step_traffic(shapes_of(), 2, 1, {.weights = 2, .gradients = 4});
  const double all = kRoot + kBlocks * kBlock;
  EXPECT_EQ(traffic.summed(), 4 * all);
  EXPECT_EQ(traffic.gathered(), 2 * all);
}

TEST(StepTime, OneRankAndInfiniteLinksComputeOnly) {
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(time_of(stage, 1, {1, 1}, {}).seconds(), 3.25);
    const auto time = time_of(stage, 2, {4, 4}, {.inside = kInfinite, .between = kInfinite});
    EXPECT_EQ(time.seconds(), 3.25);
    EXPECT_EQ(time.efficiency(), 1);
  }
}

TEST(StepTime, WithoutComputeItIsBytesOverTheRate) {
  const double sent = 3.0 / 4;  // of four ranks
  for (const int stage : {0, 1, 2, 3}) {
    const auto traffic = traffic_of(stage, 3);
    const auto time = time_of(stage, 3, {1, 4}, {.inside = 100}, {});
    EXPECT_NEAR(time.seconds(), traffic.bytes() * sent / 100, 1e-9) << stage;
    EXPECT_NEAR(time.seconds(), time.communication, 1e-9);
    EXPECT_EQ(time.efficiency(), 0);
  }
}

TEST(StepTime, NeitherFasterLinksNorFewerNodesMakeItSlower) {
  for (const int stage : {0, 1, 2, 3}) {
    double before = kInfinite;
    for (double rate = 1; rate < 1e6; rate *= 2) {
      const double now = time_of(stage, 2, {2, 4}, {.inside = 1e5, .between = rate}).seconds();
      EXPECT_LE(now, before) << stage << " " << rate;
      EXPECT_GE(now, 3.25);
      before = now;
    }
    before = 0;
    for (const int64_t nodes : {1, 2, 4, 8}) {
      const double now = time_of(stage, 2, {nodes, 4}, {.inside = 1e5, .between = 1e4}).seconds();
      EXPECT_GE(now, before) << stage << " " << nodes;
      before = now;
    }
  }
}

// Twice the compute hides more: what is exposed does not grow.
TEST(StepTime, ComputeHidesCommunicationButForTheBeginning) {
  for (const int stage : {0, 1, 2, 3}) {
    double before = kInfinite;
    for (double factor = 0; factor < 300; factor = 2 * factor + 1) {
      const auto time =
          time_of(stage, 2, {2, 1}, {.between = 200}, {.forward = factor, .backward = 2 * factor});
      EXPECT_LE(time.exposed, before + 1e-9) << stage << " " << factor;
      EXPECT_GT(time.exposed, 0);
      before = time.exposed;
    }
    EXPECT_LT(before, 0.7 * time_of(stage, 2, {2, 1}, {.between = 200}).communication);
  }
}

// With accumulation, stages 0 and 1 have one backward to hide their sums under; stage 2 has all.
TEST(StepTime, AccumulationLeavesStageZeroOneBackward) {
  const Links links{.between = 2000};
  const auto stage0 = time_of(0, 8, {2, 1}, links);
  // The first block's gradient is there after a quarter of it.
  EXPECT_NEAR(stage0.exposed, stage0.communication - 0.75 * 2.0 / 8, 1e-9);
  EXPECT_LT(time_of(0, 1, {2, 1}, links).exposed, stage0.exposed);
}

// The embedding and the first block come first and are summed last: nothing runs beside them,
// however long a step is.
TEST(StepTime, TheBeginningHasNothingToHideUnder) {
  const Work work{.forward = 100, .backward = 200};
  const double beginning = (kRoot + kBlock) / 2 / 1e4;
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_NEAR(time_of(stage, 1, {2, 1}, {.between = 1e4}, work).exposed, 2 * beginning, 1e-9);
  }
}

// Units of one size, links that take longer than compute: all but the first block's compute hides.
TEST(StepTime, ASlowLinkIsNeverIdleInBackward) {
  const auto traffic = [] {
    auto all = traffic_of(0);
    all.units.front().gradients = 0;
    return all;
  }();
  const Work work{.forward = 1, .backward = 4};
  const auto time = step_time(work, traffic, {2, 1}, {.between = 512});  // 2 s a block
  EXPECT_NEAR(time.communication, 8, 1e-9);
  EXPECT_NEAR(time.seconds(), 1 + 1 + 8, 1e-9);
}

// Cores that compute move the bytes too, but for the time in which they only wait.
TEST(StepTime, MovingBytesTakesCoresThatCompute) {
  const Work work{.forward = 100, .backward = 200};
  const auto free = time_of(0, 1, {2, 1}, {.between = 1e4}, work);
  const auto busy = time_of(0, 1, {2, 1}, {.between = 1e4, .busy = 1e-3}, work);
  const double hidden = 1 - free.exposed / free.communication;
  EXPECT_NEAR(busy.exposed - free.exposed, 1e-3 * traffic_of(0).bytes() / 2 * hidden, 1e-9);
  const auto waits = time_of(0, 1, {2, 1}, {.between = 1e4, .busy = 1e-3}, {});
  EXPECT_NEAR(waits.exposed, waits.communication, 1e-9);
}

TEST(StepTime, TheHeadIsComputedBehindTheBlocks) {
  auto traffic = traffic_of(0);
  traffic.units.front().gradients = 0;
  const Links links{.between = 512};
  // Half of backward is the head's, before any gradient is there.
  const auto time =
      step_time({.forward = 1, .backward = 4, .head_share = 0.5}, traffic, {2, 1}, links);
  EXPECT_NEAR(time.seconds(), 1 + 2 + 0.5 + 8, 1e-9);
}

// 124M in bf16 over two nodes at 10 Gbit/s: 0.2 s, whatever the number of GPUs; flat, once for
// each.
TEST(StepTime, SumsCrossOnceForEachNode) {
  const Links links{.inside = kInfinite, .between = 1.25e9};
  const double whole = 2 * 2 * 124e6;  // bytes, there and back
  EXPECT_NEAR(sum_seconds(whole, {2, 1}, links), 0.198, 0.001);
  EXPECT_NEAR(sum_seconds(whole, {2, 8}, links), 0.198, 0.001);
  const Links flat{.inside = kInfinite, .between = 1.25e9, .flat = true};
  EXPECT_NEAR(sum_seconds(whole, {2, 8}, flat), 8 * 0.198, 0.01);
  // Gathers are a ring in both.
  EXPECT_EQ(gather_seconds(whole, {2, 8}, flat), gather_seconds(whole, {2, 8}, links));
  EXPECT_NEAR(gather_seconds(whole, {2, 8}, links), whole * 15 / 16 / 1.25e9, 1e-9);
}

}  // namespace
}  // namespace skein::plan
