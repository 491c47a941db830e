// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

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

// Rows of texts, each with pages of its own that lie across those of the others.
class Texts {
 public:
  Texts(const Model& model, int64_t rows, int64_t capacity)
      : model_(model), cache_(model.make_cache()), rows_(rows) {
    const auto width = (capacity + KvCache::kPageTokens - 1) / KvCache::kPageTokens;
    cache_.reserve(rows * width);
    pages_ = at::arange(rows * width, at::kInt).view({width, rows}).t().contiguous();
  }

  // The tokens (R, T) of all texts from `begin` on.
  at::Tensor read(const at::Tensor& tokens, int64_t begin) {
    std::vector<at::Tensor> hidden;
    for (int64_t row = 0; row < rows_; ++row) hidden.push_back(read(row, tokens[row], begin));
    return at::stack(hidden);
  }
  // Of one text, (T) -> (T, C).
  at::Tensor read(int64_t row, const at::Tensor& tokens, int64_t begin) {
    const auto count = tokens.size(0);
    auto run = std::make_shared<tensor::DocumentRun>();
    run->ends = {static_cast<int32_t>(count)};
    run->longest = run->longest_own = count;
    cache_.begin({.positions = at::arange(begin, begin + count, at::kLong),
                  .pages = pages_.narrow(0, row, 1),
                  .rows = at::zeros({count}, at::kInt),
                  .beginnings = begin == 0 ? run : nullptr});
    const std::vector<int64_t> lengths{begin + count};
    return model_.decode(tokens.unsqueeze(0), cache_, units_, lengths)[0];
  }
  // The next token of each text, (R) -> (R, C).
  at::Tensor step(const at::Tensor& tokens, const std::vector<int64_t>& positions) {
    std::vector<int64_t> lengths;
    for (const auto position : positions) lengths.push_back(position + 1);
    cache_.begin({.positions = at::tensor(positions), .pages = pages_});
    return model_.decode(tokens.unsqueeze(1), cache_, units_, lengths).squeeze(1);
  }

 private:
  const Model& model_;
  tensor::PlainUnits units_;
  KvCache cache_;
  int64_t rows_;
  at::Tensor pages_;  // (R, P)
};

void expect_pieces_equal_the_row(const Model& model) {
  const auto tokens = tiny_batch(3, 9).tokens;
  const auto whole = forward_of(model, tokens);
  Texts texts(model, 3, 9);
  int64_t done = 0;
  for (const int64_t count : {4, 1, 2}) {
    expect_near(texts.read(tokens.narrow(1, done, count), done), whole.narrow(1, done, count));
    done += count;
  }
  for (; done < 9; ++done) {
    expect_near(texts.step(tokens.select(1, done), {done, done, done}), whole.select(1, done));
  }
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

// Texts of 2, 5 and 4 tokens go on together.
TEST(Decode, RowsOfDifferentLengthsStepTogether) {
  for (const auto& config : decode_cases()) {
    const auto model = tiny_model(config);
    const auto tokens = tiny_batch(3, 9).tokens;
    const auto whole = forward_of(*model, tokens);
    std::vector<int64_t> lengths{2, 5, 4};
    Texts texts(*model, 3, 9);
    for (int64_t row = 0; row < 3; ++row) {
      const auto length = lengths[static_cast<size_t>(row)];
      expect_near(texts.read(row, tokens[row].narrow(0, 0, length), 0),
                  whole[row].narrow(0, 0, length));
    }
    for (int64_t step = 0; step < 4; ++step) {
      const auto places = at::tensor(lengths).unsqueeze(1);
      const auto found = texts.step(tokens.gather(1, places).squeeze(1), lengths);
      const auto index = places.unsqueeze(2).expand({3, 1, whole.size(2)});
      expect_near(found, whole.gather(1, index).squeeze(1));
      for (auto& length : lengths) ++length;
    }
  }
}

// A page is crossed, and what two texts share is copied.
TEST(Decode, GoesOnAcrossPages) {
  const auto model = tiny_model(tiny_config(kTinyLlama, R"(, "max_position_embeddings": 64)"));
  const auto tokens = tiny_batch(1, 40).tokens;
  const auto whole = forward_of(*model, tokens);
  Texts texts(*model, 1, 40);
  expect_near(texts.read(tokens.narrow(1, 0, 15), 0), whole.narrow(1, 0, 15));
  expect_near(texts.read(tokens.narrow(1, 15, 18), 15), whole.narrow(1, 15, 18));
  for (int64_t at = 33; at < 40; ++at) {
    expect_near(texts.step(tokens.select(1, at), {at}), whole.select(1, at));
  }
}

TEST(Decode, ACopiedPageHoldsTheSame) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  const auto tokens = tiny_batch(1, 6).tokens;
  tensor::PlainUnits units;
  auto cache = model->make_cache();
  cache.reserve(3);
  const auto pass = [&](int64_t position, int page) {
    cache.begin({.positions = at::tensor({position}), .pages = at::full({1, 1}, page, at::kInt)});
    return model->decode(tokens.narrow(1, position, 1), cache, units);
  };
  for (int64_t at = 0; at < 5; ++at) pass(at, 0);
  cache.copy_pages(at::tensor({int64_t{0}}), at::tensor({int64_t{2}}));
  const auto expected = forward_of(*model, tokens).narrow(1, 5, 1);
  expect_near(pass(5, 2), expected);
  expect_near(pass(5, 0), expected);
}

// Longrope's tokens turn as those of a text of their row's length, whatever room there is. Where
// the text outgrows its short factors, the row begins anew.
TEST(Decode, TurnsByTheRowsOwnLength) {
  const auto model = tiny_model(tiny_config(kTinyPhi, kTinyLongRope));
  const auto tokens = tiny_batch(3, 9).tokens;
  Texts texts(*model, 3, 9);
  for (const int64_t length : {3, 5, 7}) {
    const auto alone = tokens[0].narrow(0, 0, length);
    expect_near(texts.read(0, alone, 0), forward_of(*model, alone.unsqueeze(0))[0]);
  }
  EXPECT_TRUE(model->turns_by_length());
  EXPECT_FALSE(model->outgrows(4, 5));
  EXPECT_TRUE(model->outgrows(5, 6));
  EXPECT_FALSE(model->outgrows(6, 7));
  // Of other families transformers keeps the cache.
  const auto llama =
      tiny_model(tiny_config(kTinyLlama, R"(, "max_position_embeddings": 9, "rope_scaling":
          {"rope_type": "longrope", "original_max_position_embeddings": 5,
           "short_factor": [1], "long_factor": [2]})"));
  EXPECT_FALSE(llama->outgrows(5, 6));
  EXPECT_FALSE(tiny_model(tiny_config(kTinyLlama))->turns_by_length());
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
  Texts texts(*model, 1, 9);
  expect_near(texts.read(tokens.narrow(1, 0, 5), 0), forward_of(*model, tokens.narrow(1, 0, 5)));
  auto by_hand = model->make_cache();
  by_hand.reserve(1);
  // What is stored was turned by the text's length at that time.
  const auto pass = [&](const Model& turning, int64_t begin, int64_t count) {
    by_hand.begin({.positions = at::arange(begin, begin + count, at::kLong),
                   .pages = at::zeros({1, 1}, at::kInt),
                   .rows = at::zeros({count}, at::kInt)});
    return turning.decode(tokens.narrow(1, begin, count), by_hand, units);
  };
  pass(*turning_as(5), 0, 5);
  for (int64_t step = 5; step < 9; ++step) {
    const auto found = texts.step(tokens.select(1, step), {step});
    const auto expected = pass(*turning_as(step + 1), step, 1)[0];
    // Angles are formed in fp32, each time in another way.
    EXPECT_TRUE(at::allclose(found, expected, 1e-5, 1e-5)) << step;
  }
}

TEST(Decode, KeepsNoGraph) {
  const auto model = tiny_model(tiny_config(kTinyGpt));
  Texts texts(*model, 2, 4);
  EXPECT_FALSE(texts.read(tiny_batch(2, 4).tokens, 0).requires_grad());
}

}  // namespace
}  // namespace skein::model
