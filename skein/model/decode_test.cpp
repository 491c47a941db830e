// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <ATen/ops/allclose.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "skein/core/error.h"
#include "skein/model/tiny_models.h"

namespace skein::model {
namespace {

constexpr tensor::StepKey kEvaluation{.training = false};

std::vector<plan::HfConfig> decode_cases() {
  std::vector<plan::HfConfig> cases = {
      tiny_config(kTinyLlama, R"(, "num_key_value_heads": 4)"),
      tiny_config(kTinyGpt, R"(, "scale_attn_by_inverse_layer_idx": true)"),
      tiny_config(kTinyLlama, R"(, "rope_scaling": {"rope_type": "llama3", "factor": 4,
          "original_max_position_embeddings": 4})"),
      tiny_config(kTinyMistral, R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4})")};
  for (const auto& family : tiny_families()) cases.push_back(tiny_config(family));
  return cases;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-10))
      << (found - expected).abs().max().item<double>();
}

at::Tensor forward_of(const Model& model, const at::Tensor& tokens) {
  tensor::PlainUnits units;
  tensor::Batch batch;
  batch.tokens = tokens;
  return model.forward(batch, kEvaluation, units);
}

void expect_pieces_equal_the_row(const Model& model) {
  tensor::PlainUnits units;
  const auto tokens = tiny_batch(3, 9).tokens;
  const auto whole = forward_of(model, tokens);
  KvCache cache(3, 9);
  int64_t done = 0;
  for (const int64_t count : {4, 1, 2, 1, 1}) {
    const auto found = model.decode(tokens.narrow(1, done, count), cache, units);
    expect_near(found, whole.narrow(1, done, count));
    done += count;
  }
  EXPECT_EQ(cache.lengths()[2], 9);
}

TEST(Decode, InPiecesEqualsTheWholeRow) {
  for (const auto& config : decode_cases()) expect_pieces_equal_the_row(*tiny_model(config));
}

TEST(Decode, TakesAdaptersAsTheyAre) {
  for (const char* keys : {R"("target_modules": "all-linear", "lora_dropout": 0.5)",
                           R"("target_modules": ".*", "use_dora": true)"}) {
    for (const auto& family : tiny_families()) {
      expect_pieces_equal_the_row(*tiny_model(tiny_config(family), {.tuning = tiny_lora(keys)}));
    }
  }
}

// Prompts of 2, 5 and 4 tokens, padded with different tokens; each row then goes on alone.
TEST(Decode, RowsOfDifferentLengthsDoNotSeeTheirPadding) {
  const std::vector<int64_t> lengths{2, 5, 4};
  for (const auto& config : decode_cases()) {
    const auto model = tiny_model(config);
    tensor::PlainUnits units;
    const auto tokens = tiny_batch(3, 9).tokens;
    const auto whole = forward_of(*model, tokens);
    auto prompts = tokens.narrow(1, 0, 5).clone();
    prompts[0].narrow(0, 2, 3).fill_(16);
    prompts[2].narrow(0, 4, 1).fill_(3);
    KvCache cache(3, 9);
    const auto hidden = model->decode(prompts, cache, units, lengths);
    for (int64_t row = 0; row < 3; ++row) {
      const auto length = lengths[static_cast<size_t>(row)];
      expect_near(hidden[row].narrow(0, 0, length), whole[row].narrow(0, 0, length));
    }
    for (int64_t step = 0; step < 4; ++step) {
      const auto positions = cache.positions(1, at::kCPU);
      const auto found = model->decode(tokens.gather(1, positions), cache, units);
      const auto index = positions.unsqueeze(2).expand({3, 1, whole.size(2)});
      expect_near(found, whole.gather(1, index));
    }
  }
}

// Longrope's tokens turn as those of a text of their row's length, whatever room there is. Where
// the text outgrows its short factors, the row begins anew.
TEST(Decode, TurnsByTheRowsOwnLength) {
  const auto model = tiny_model(tiny_config(kTinyPhi, kTinyLongRope));
  tensor::PlainUnits units;
  const auto tokens = tiny_batch(3, 9).tokens;
  const std::vector<int64_t> lengths{3, 5, 7};
  KvCache cache(3, 9);
  const auto hidden = model->decode(tokens.narrow(1, 0, 7), cache, units, lengths);
  for (int64_t row = 0; row < 3; ++row) {
    const auto length = lengths[static_cast<size_t>(row)];
    const auto alone = tokens.narrow(0, row, 1).narrow(1, 0, length);
    expect_near(hidden[row].narrow(0, 0, length), forward_of(*model, alone)[0]);
  }
  EXPECT_FALSE(model->outgrows(4, 5));
  EXPECT_TRUE(model->outgrows(5, 6));
  EXPECT_FALSE(model->outgrows(6, 7));
  // Of other families transformers keeps the cache.
  const auto llama =
      tiny_model(tiny_config(kTinyLlama, R"(, "max_position_embeddings": 9, "rope_scaling":
          {"rope_type": "longrope", "original_max_position_embeddings": 5,
           "short_factor": [1], "long_factor": [2]})"));
  EXPECT_FALSE(llama->outgrows(5, 6));
}

// Dynamic's tokens turn as those of a text that ends with them, and what the cache holds stays.
TEST(Decode, DynamicGoesOnBeyondThePositionsOfTheFile) {
  constexpr double kTheta = 100, kFactor = 1.9, kPositions = 5, kHead = 6;
  const auto model =
      tiny_model(tiny_config(kTinyQwen3, R"(, "rope_theta": 100.0, "max_position_embeddings": 5,
                     "rope_scaling": {"rope_type": "dynamic", "factor": 1.9})"));
  // The same weights, which turn as a text of that length does.
  const auto turning_as = [&](int64_t length) {
    const double stretch = kFactor * static_cast<double>(length) / kPositions - (kFactor - 1);
    const double theta = kTheta * std::pow(std::max(stretch, 1.0), kHead / (kHead - 2));
    return tiny_model(tiny_config(
        kTinyQwen3,
        fmt::format(R"(, "max_position_embeddings": 9, "rope_theta": {:.17g})", theta)));
  };
  EXPECT_EQ(model->max_positions(), 9);
  EXPECT_FALSE(model->outgrows(5, 6));
  tensor::PlainUnits units;
  const auto tokens = tiny_batch(1, 9).tokens;
  KvCache cache(1, 9);
  expect_near(model->decode(tokens.narrow(1, 0, 5), cache, units),
              forward_of(*model, tokens.narrow(1, 0, 5)));
  KvCache by_hand(1, 9);
  turning_as(5)->decode(tokens.narrow(1, 0, 5), by_hand, units);
  for (int64_t step = 5; step < 9; ++step) {
    const auto next = tokens.narrow(1, step, 1);
    const auto found = model->decode(next, cache, units);
    const auto expected = turning_as(step + 1)->decode(next, by_hand, units);
    // Angles are formed in fp32, each time in another way.
    EXPECT_TRUE(at::allclose(found, expected, 1e-5, 1e-5)) << step;
  }
  KvCache too_large(1, 10);
  EXPECT_THROW(model->decode(tokens, too_large, units), InternalError);
}

TEST(Decode, KeepsTheRowsThatAreAskedFor) {
  const auto model = tiny_model(tiny_config(kTinyLlama));
  tensor::PlainUnits units;
  const auto tokens = tiny_batch(3, 6).tokens;
  const auto whole = forward_of(*model, tokens);
  KvCache cache(3, 6);
  model->decode(tokens.narrow(1, 0, 5), cache, units);
  cache.keep_rows(std::vector<int64_t>{2, 0});
  EXPECT_EQ(cache.rows(), 2);
  const auto last = model->decode(at::stack({tokens[2], tokens[0]}).narrow(1, 5, 1), cache, units);
  expect_near(last[0][0], whole[2][5]);
  expect_near(last[1][0], whole[0][5]);
}

TEST(Decode, KeepsNoGraphAndRefusesAFullCache) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  tensor::PlainUnits units;
  KvCache cache(2, 4);
  const auto tokens = tiny_batch(2, 5).tokens;
  EXPECT_FALSE(model->decode(tokens.narrow(1, 0, 4), cache, units).requires_grad());
  EXPECT_THROW(model->decode(tokens.narrow(1, 4, 1), cache, units), InternalError);
  KvCache too_large(2, 10);  // the model knows 9 positions
  EXPECT_THROW(model->decode(tokens, too_large, units), InternalError);
}

}  // namespace
}  // namespace skein::model
