// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/dropout.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>
#include <utility>

#include "skein/core/random.h"

namespace skein::ops {
namespace {

at::Tensor document_ids(std::vector<int64_t> ids) { return at::tensor(ids, at::kLong); }

Dropout make_dropout(double probability, std::vector<int64_t> ids, int64_t layer = 0) {
  return {probability, dropout_stream({.seed = 7, .step = 3}, layer, DropoutSite::kMlpOutput),
          document_ids(std::move(ids))};
}

TEST(Dropout, DropsTheAskedShareAndKeepsTheMean) {
  const auto x = at::ones({2, 64, 512});
  const auto y = dropout(x, make_dropout(0.3, {4, 9}));
  const double dropped = y.eq(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(dropped, 0.3, 0.01);  // five deviations of 65536 draws
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.015);
  EXPECT_TRUE(at::equal(y.eq(0), y.ne(static_cast<float>(1 / 0.7))));
}

TEST(Dropout, TakesTheDocumentedWord) {
  const auto options = make_dropout(0.5, {11, 12});
  const auto y = dropout(at::ones({2, 5, 7}), options);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t c = 0; c < 7; ++c) {
        const auto counter = (static_cast<uint64_t>(t) << 32) + static_cast<uint64_t>(c / 4);
        const auto words = random::philox(options.stream, counter, static_cast<uint64_t>(11 + b));
        EXPECT_EQ(y[b][t][c].item<float>() != 0, words.word[c % 4] >= 0x80000000U);
      }
    }
  }
}

TEST(Dropout, DoesNotDependOnBatchSplitOrPadding) {
  at::manual_seed(1);
  const auto x = at::randn({3, 9, 10});
  const auto whole = dropout(x, make_dropout(0.4, {5, 6, 7}));
  const auto row = dropout(x.narrow(0, 1, 1), make_dropout(0.4, {6}));
  EXPECT_TRUE(at::equal(whole.narrow(0, 1, 1), row));
  const auto shorter = dropout(x.narrow(1, 0, 4), make_dropout(0.4, {5, 6, 7}));
  EXPECT_TRUE(at::equal(whole.narrow(1, 0, 4), shorter));
}

TEST(Dropout, StreamsDifferByEveryPartOfTheirName) {
  std::set<uint64_t> streams;
  for (const uint64_t seed : {1, 2}) {
    for (const int64_t step : {0, 1}) {
      for (const int64_t layer : {-1, 0, 1}) {
        for (const auto site : {DropoutSite::kEmbedding, DropoutSite::kAttention}) {
          streams.insert(dropout_stream({.seed = seed, .step = step}, layer, site));
        }
      }
    }
  }
  EXPECT_EQ(streams.size(), 24U);
}

TEST(Dropout, BackwardUsesTheSameMask) {
  const auto x = at::ones({2, 6, 9}, at::kDouble).set_requires_grad(true);
  const auto y = dropout(x, make_dropout(0.5, {1, 2}));
  const auto gradient = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_TRUE(at::equal(gradient, y.detach()));
}

TEST(Dropout, EveryDtypeDrawsTheSameMask) {
  const auto options = make_dropout(0.5, {3});
  const auto mask = dropout(at::ones({1, 8, 33}), options).ne(0);
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(at::equal(dropout(at::ones({1, 8, 33}, dtype), options).ne(0), mask));
  }
}

TEST(Dropout, OfProbabilityZeroIsTheInputItself) {
  const auto x = at::ones({1, 2, 3});
  EXPECT_TRUE(dropout(x, make_dropout(0, {1})).is_same(x));
}

TEST(AttentionDropout, DoesNotDependOnThePaddedLength) {
  const auto longer = attention_dropout(at::ones({1, 3, 8, 8}), make_dropout(0.5, {2}));
  const auto shorter = attention_dropout(at::ones({1, 3, 5, 5}), make_dropout(0.5, {2}));
  EXPECT_TRUE(at::equal(longer.narrow(2, 0, 5).narrow(3, 0, 5), shorter));
  EXPECT_FALSE(at::equal(longer.select(1, 0), longer.select(1, 1)));  // heads draw for themselves
}

// Three documents behind each other, and each alone.
TEST(Dropout, ARunDrawsWhatItsDocumentsDrawAlone) {
  at::manual_seed(3);
  const auto x = at::randn({1, 9, 10}, at::kDouble).set_requires_grad(true);
  auto options = make_dropout(0.4, {5, 5, 5, 5, 7, 2, 2, 2, 2});
  options.positions = document_ids({0, 1, 2, 3, 0, 0, 1, 2, 3});
  const auto found = dropout(x, options);
  const auto gradient = torch::autograd::grad({found.sum()}, {x})[0];
  int64_t begin = 0;
  for (const auto& [id, length] : {std::pair<int64_t, int64_t>{5, 4}, {7, 1}, {2, 4}}) {
    const auto alone = dropout(x.narrow(1, begin, length).detach(), make_dropout(0.4, {id}));
    EXPECT_TRUE(at::equal(found.narrow(1, begin, length), alone)) << id;
    const auto kept = alone.ne(0).to(at::kDouble) / 0.6;
    EXPECT_TRUE(at::allclose(gradient.narrow(1, begin, length), kept)) << id;
    begin += length;
  }
}

}  // namespace
}  // namespace skein::ops
