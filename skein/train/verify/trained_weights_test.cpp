// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/verify/trained_weights.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/plan/hf_config.h"

namespace skein::train {
namespace {

constexpr const char* kSmallLlama =
    R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})";
constexpr const char* kChanged = "model.layers.1.mlp.up_proj.weight";

// First weights at a stage; `factor` times those of one tensor.
TrainedWeights weights_at(int stage, comm::Group& group, double factor = 1) {
  const auto model = model::build(plan::parse_hf_config(kSmallLlama, "test"), {});
  parallel::Sharded sharded(model->table(), {.stage = parallel::kStages[stage]}, group);
  sharded.initialise(3);
  for (auto& slice : sharded.kept_slices(Access::kSet)) {
    if (slice.name == kChanged) slice.data.mul_(factor);
  }
  optim::AdamW optimizer(sharded.owned_ranges(), {}, sharded.memory());
  return copy_trained(sharded, model->table(), optimizer.states());
}

TEST(TrainedWeights, AreTheSameUnderEveryStage) {
  comm::run_ranks(3, [](comm::Group& group) {
    const auto expected = weights_at(0, group);
    for (const int stage : {1, 2, 3}) {
      const auto found = weights_at(stage, group);
      EXPECT_EQ(found.digest, expected.digest);
      EXPECT_EQ(difference(expected, found, group).relative, 0);
    }
  });
}

TEST(TrainedWeights, DifferenceIsRelativeToTheTensor) {
  comm::run_ranks(2, [](comm::Group& group) {
    const auto a = weights_at(0, group), b = weights_at(3, group, 1.25);
    EXPECT_NE(a.digest, b.digest);
    const auto found = difference(a, b, group);
    EXPECT_EQ(found.tensor, kChanged);
    EXPECT_NEAR(found.relative, 0.25, 1e-6);
    const auto lost = difference(a, weights_at(1, group, std::nan("")), group);
    EXPECT_TRUE(std::isnan(lost.relative));
    EXPECT_EQ(lost.tensor, kChanged);
  });
}

// A difference that the weights' 16 bits do not show.
TEST(TrainedWeights, MastersStandForWeightsOf16Bits) {
  comm::run_ranks(2, [](comm::Group& group) {
    const auto model =
        model::build(plan::parse_hf_config(kSmallLlama, "test"), {.dtype = at::kBFloat16});
    parallel::Sharded sharded(model->table(), {.stage = parallel::kZero3}, group);
    sharded.initialise(3);
    optim::AdamW optimizer(sharded.owned_ranges(), {}, sharded.memory());
    optimizer.refresh_masters();
    const auto before = copy_trained(sharded, model->table(), optimizer.states());
    for (auto& slice : sharded.slices_to_save(optimizer.states())) {
      if (slice.name == std::string(kChanged) + ".master") slice.data.mul_(1 + 1e-4);
    }
    const auto after = copy_trained(sharded, model->table(), optimizer.states());
    EXPECT_EQ(after.slices.size(), sharded.slices_to_save(Access::kRead).size());
    const auto found = difference(before, after, group);
    EXPECT_EQ(found.tensor, kChanged);
    EXPECT_NEAR(found.relative, 1e-4, 1e-6);
  });
}

TEST(TrainedWeights, SumsDoNotDependOnTheNumberOfRanks) {
  std::vector<TensorSums> expected;
  comm::run_ranks(1, [&](comm::Group& group) { expected = weights_at(0, group).tensors; });
  comm::run_ranks(4, [&](comm::Group& group) {
    const auto found = weights_at(3, group).tensors;
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, expected[i].name);
      EXPECT_NEAR(found[i].sum, expected[i].sum, 1e-12 * std::sqrt(61 * 48));
      EXPECT_NEAR(found[i].square_sum, expected[i].square_sum, 1e-12 * expected[i].square_sum);
      EXPECT_GT(found[i].square_sum, 0);
    }
  });
}

}  // namespace
}  // namespace skein::train
