// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Strategies of one's own (docs/add_a_strategy.md): stages that the library does not name, and a
// loop of one's own around them.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <map>

#include "skein/algorithms/pretrain.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/testing.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/train/update.h"

namespace skein::ranks {
namespace {

using parallel::Kept, parallel::Stage;

// ZeRO 2 whose gradients add up at home and travel once a step: the bytes of ZeRO 1, a whole
// gradient in memory while micro-batches run.
constexpr Stage kPatient{.states = Kept::kShard, .gradients = Kept::kShard};

// ZeRO 3 between steps and ZeRO 2 within one: whole weights while micro-batches run.
constexpr Stage kAwake{.states = Kept::kShard,
                       .gradients = Kept::kShard,
                       .parameters = Kept::kShard,
                       .reduces_every_micro_batch = true,
                       .gathers_once_a_step = true};

// Whole gradients beside sharded weights.
constexpr Stage kLopsided{.states = Kept::kShard, .parameters = Kept::kShard};

constexpr int64_t kVocabulary = 61, kTokens = 12, kMicroBatches = 3;

std::unique_ptr<model::Model> build_model() {
  return model::build(
      plan::parse_hf_config(
          R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2})",
          "config.json"),
      {});
}

tensor::Batch make_batch(int64_t number) {
  const auto rows = at::arange(2) + number * 2;
  const auto text = (rows.unsqueeze(1) * 7 + at::arange(kTokens + 1) * 5) % kVocabulary;
  return {text.slice(1, 0, kTokens).contiguous(), text.slice(1, 1, kTokens + 1).contiguous(), rows,
          2 * kTokens};
}

// What one rank saw.
struct Outcome {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> parameters;  // its shard, which is the same at every stage
  int64_t sent = 0;                              // bytes in the last step
  int64_t kept = 0;                              // bytes of flat memory between steps
};

// The trainer: a model, a stage, an optimizer, and a loop.
Outcome train_rank(const Stage& stage, comm::Group& world) {
  const auto model = build_model();
  const algorithms::Pretrain algorithm(*model);
  parallel::Sharded sharded(model->table(), {.stage = stage}, world);
  sharded.initialise(5);
  optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
  train::Phases phases;
  Outcome outcome;
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<tensor::Batch> batches;
    for (int64_t k = 0; k < kMicroBatches; ++k) {
      batches.push_back(make_batch((step * kMicroBatches + k) * world.size() + world.rank()));
    }
    const int64_t num_targets = 2 * kTokens * kMicroBatches * world.size();
    const int64_t sent = world.bytes_sent();
    const auto update =
        train::update({algorithm, sharded, optimizer, phases},
                      {batches, {.targets = num_targets}, {.seed = 3, .step = step}},
                      {.learning_rate = 1e-2, .max_grad_norm = 1.0});
    outcome.norms.push_back(update.norm.norm.item<double>());
    outcome.sent = world.bytes_sent() - sent;
  }
  for (const auto& slice : sharded.slices_to_save(Access::kRead)) {
    outcome.parameters[slice.name] = slice.data.clone();
  }
  outcome.kept = sharded.memory().bytes();
  return outcome;
}

std::vector<Outcome> train(const Stage& stage, int ranks) {
  std::vector<Outcome> outcomes(ranks);
  comm::run_ranks(ranks,
                  [&](comm::Group& world) { outcomes[world.rank()] = train_rank(stage, world); });
  return outcomes;
}

void expect_bit_equal(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
  for (size_t rank = 0; rank < a.size(); ++rank) {
    EXPECT_EQ(a[rank].norms, b[rank].norms);
    ASSERT_EQ(a[rank].parameters.size(), b[rank].parameters.size());
    for (const auto& [name, values] : a[rank].parameters) {
      EXPECT_TRUE(values.equal(b[rank].parameters.at(name))) << name;
    }
  }
}

TEST(CustomStage, GradientsThatTravelOnceSendAsLittleAsStage1) {
  for (const int ranks : {2, 3}) {
    const auto patient = train(kPatient, ranks), one = train(parallel::kZero1, ranks);
    expect_bit_equal(patient, one);  // micro-batches are summed before ranks
    EXPECT_EQ(patient[0].sent, one[0].sent);
    EXPECT_LT(patient[0].sent, train(parallel::kZero2, ranks)[0].sent);
  }
}

TEST(CustomStage, WeightsGatheredOnceAStepAreStage3BetweenStepsAndStage2Within) {
  for (const int ranks : {2, 3}) {
    const auto awake = train(kAwake, ranks), two = train(parallel::kZero2, ranks),
               three = train(parallel::kZero3, ranks);
    expect_bit_equal(awake, two);
    expect_bit_equal(awake, three);
    EXPECT_EQ(awake[0].sent, two[0].sent);
    EXPECT_EQ(awake[0].kept, three[0].kept);
    EXPECT_LT(awake[0].sent, three[0].sent);
  }
}

TEST(CustomStage, WholeGradientsBesideShardedWeights) {
  expect_bit_equal(train(kLopsided, 2), train(parallel::kDdp, 2));
}

TEST(CustomStage, WhatCannotBeCarriedOutIsRefused) {
  const auto refused = [](const Stage& stage) {
    const auto model = build_model();
    return refusal<InternalError>(
        [&] { parallel::Sharded(model->table(), {.stage = stage}, comm::Group()); });
  };
  EXPECT_PRED2(contains, refused({.parameters = Kept::kShard}), "must shard the states too");
  EXPECT_PRED2(contains, refused({.gradients = Kept::kShard}), "must shard the states too");
  EXPECT_PRED2(contains, refused({.states = Kept::kShard, .reduces_every_micro_batch = true}),
               "must shard the gradients");
  EXPECT_PRED2(contains, refused({.states = Kept::kShard, .gathers_once_a_step = true}),
               "must shard the parameters");
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) {
  skein::set_log_level(skein::LogLevel::kError);
  at::set_num_threads(1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
