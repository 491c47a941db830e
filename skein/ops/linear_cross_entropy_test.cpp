// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>

#include "skein/core/error.h"
#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

constexpr int64_t kRows = 11, kChannels = 6, kVocabulary = 13;

struct HeadCase {
  at::Tensor hidden, weight, targets, weights;

  explicit HeadCase(at::ScalarType dtype) {
    at::manual_seed(5);
    hidden = at::randn({kRows, kChannels}, at::kDouble).to(dtype).set_requires_grad(true);
    weight = at::randn({kVocabulary, kChannels}, at::kDouble).to(dtype).set_requires_grad(true);
    targets = at::randint(0, kVocabulary, {kRows}, at::kLong);
    targets.index_put_({at::arange(0, kRows, 4)}, at::zeros_like(targets[0]) + tensor::kIgnore);
    weights = at::rand({kRows}, at::kDouble);
  }

  // log p of every target from all logits at once, 0 where ignored.
  at::Tensor plain_log_probs(double cap = 0) const {
    auto logits = hidden.matmul(weight.t());
    if (cap > 0) logits = (logits / cap).tanh() * cap;
    const auto valid = targets.ne(tensor::kIgnore);
    const auto index = targets.clamp_min(0).unsqueeze(1);
    return at::log_softmax(logits, 1).gather(1, index).squeeze(1) * valid;
  }

  std::vector<at::Tensor> gradients(const at::Tensor& loss) const {
    return torch::autograd::grad({loss}, {hidden, weight});
  }
};

int64_t bytes_of_rows(int64_t rows) { return rows * kVocabulary * 8; }

TEST(LinearCrossEntropy, EqualsThePlainFormulaForEveryChunkSize) {
  const HeadCase c(at::kDouble);
  const auto expected = -(c.plain_log_probs() * c.weights).sum();
  const auto wanted = c.gradients(expected * 3);
  for (const int64_t rows : {1, 3, 4, 11, 100}) {
    const auto loss = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, c.weights,
                                               {.logits_bytes = bytes_of_rows(rows)});
    EXPECT_EQ(loss.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::allclose(loss, expected, 1e-12)) << rows;
    const auto found = c.gradients(loss * 3);
    EXPECT_TRUE(at::allclose(found[0], wanted[0], 1e-11, 1e-13)) << rows;
    EXPECT_TRUE(at::allclose(found[1], wanted[1], 1e-11, 1e-13)) << rows;
  }
}

TEST(LinearCrossEntropy, WithoutWeightsEveryTargetCountsOnce) {
  const HeadCase c(at::kDouble);
  const auto loss = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {});
  EXPECT_TRUE(at::allclose(loss, -c.plain_log_probs().sum(), 1e-12));
}

TEST(LinearCrossEntropy, IgnoredRowsGiveExactlyZeroGradient) {
  const HeadCase c(at::kFloat);
  const auto loss = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {});
  const auto rows = c.gradients(loss)[0].index({c.targets.eq(tensor::kIgnore)});
  ASSERT_EQ(rows.size(0), 3);
  EXPECT_TRUE(at::equal(rows, at::zeros_like(rows)));
}

TEST(LinearCrossEntropy, SixteenBitGradientsStayNearTheWideOnes) {
  const HeadCase c(at::kBFloat16);
  const auto loss = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {},
                                             {.logits_bytes = bytes_of_rows(1)});
  const auto found = c.gradients(loss);
  const auto hidden = c.hidden.detach().to(at::kDouble).set_requires_grad(true);
  const auto weight = c.weight.detach().to(at::kDouble).set_requires_grad(true);
  const auto wide = linear_cross_entropy_sum({hidden, weight}, c.targets, {});
  const auto wanted = torch::autograd::grad({wide}, {hidden, weight});
  EXPECT_TRUE(at::allclose(loss, wide, 1e-2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
    const auto distance = (found[i].to(at::kDouble) - wanted[i]).norm() / wanted[i].norm();
    EXPECT_LT(distance.item<double>(), 2e-2) << i;
  }
}

TEST(LinearCrossEntropy, FrozenWeightGetsNoGradient) {
  const HeadCase c(at::kDouble);
  const auto expected =
      c.gradients(linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {}))[0];
  const auto loss = linear_cross_entropy_sum({c.hidden, c.weight.detach()}, c.targets, {});
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {c.hidden})[0], expected));
}

TEST(LinearCrossEntropy, KeepsNoGraphWithoutGradMode) {
  const HeadCase c(at::kDouble);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {}).requires_grad());
}

TEST(LinearCrossEntropy, RunsOnTheMetaDevice) {
  const auto meta = at::TensorOptions(at::kMeta);
  const auto loss = linear_cross_entropy_sum({at::empty({5, 4}, meta), at::empty({7, 4}, meta)},
                                             at::empty({5}, meta.dtype(at::kLong)), {});
  EXPECT_EQ(loss.dim(), 0);
}

// Near equal probabilities the gradient of every target's logit is near 1: a factor that meets it
// before it is rounded to 16 bits would be rounded alike in all rows.
struct LengthCase {
  static constexpr int64_t kManyRows = 1024, kWidth = 256, kWords = 1024;
  at::Tensor hidden, weight, targets, wide_hidden, wide_weight;

  LengthCase() {
    at::manual_seed(6);
    hidden = leaf(at::randn({kManyRows, kWidth}) * 0.3, at::kBFloat16);
    weight = leaf(at::randn({kWords, kWidth}) * 0.1, at::kBFloat16);
    wide_hidden = leaf(hidden.detach(), at::kFloat);
    wide_weight = leaf(weight.detach(), at::kFloat);
    targets = at::randint(0, kWords, {kManyRows}, at::kLong);
  }
  static at::Tensor leaf(const at::Tensor& values, at::ScalarType dtype) {
    return values.to(dtype).set_requires_grad(true);
  }

  using Loss = std::function<at::Tensor(const at::Tensor& hidden, const at::Tensor& weight)>;
  // Of d_hidden and d_weight along fp32's.
  std::array<double, 2> lengths(const Loss& loss) const {
    const auto narrow = torch::autograd::grad({loss(hidden, weight)}, {hidden, weight});
    const auto wide =
        torch::autograd::grad({loss(wide_hidden, wide_weight)}, {wide_hidden, wide_weight});
    std::array<double, 2> found{};
    for (size_t i = 0; i < 2; ++i) {
      const auto along = wide[i].to(at::kDouble);
      found[i] = ((narrow[i].to(at::kDouble) * along).sum() / (along * along).sum()).item<double>();
    }
    return found;
  }
};

TEST(LinearCrossEntropy, FactorsReachSixteenBitGradientsUnrounded) {
  const LengthCase c;
  const auto check = [&](const char* name, double bound, const auto& loss_over) {
    std::vector<double> found[2];
    for (int64_t i = 0; i < 20; ++i) {
      const double count = 1000 + 137 * static_cast<double>(i);
      const auto lengths = c.lengths([&](const at::Tensor& hidden, const at::Tensor& weight) {
        return loss_over(count, hidden, weight);
      });
      for (size_t k = 0; k < 2; ++k) found[k].push_back(lengths[k]);
    }
    for (size_t k = 0; k < 2; ++k) {
      const auto [least, most] = std::ranges::minmax(found[k]);
      EXPECT_LE(most - least, bound) << name << " " << k << ": " << least << " to " << most;
    }
  };
  check("weights", 1e-4, [&](double count, const auto& hidden, const auto& weight) {
    const auto weights = at::full({LengthCase::kManyRows}, 1 / count, at::kDouble);
    return linear_cross_entropy_sum({hidden, weight}, c.targets, weights);
  });
  // Gradients that have been rounded to 16 bits, times a factor, are rounded a second time: few
  // values that round alike. The factor itself is not: that would be 4e-3.
  check("after", 5e-4, [&](double count, const auto& hidden, const auto& weight) {
    return linear_cross_entropy_sum({hidden, weight}, c.targets, {}) / count;
  });
  check("log_probs", 1e-4, [&](double count, const auto& hidden, const auto& weight) {
    return linear_log_probs({hidden, weight}, c.targets).log_probs.sum() / count;
  });
}

// Probabilities of about 1e-7, as most of a large vocabulary's are: multiples of the least float16.
// A row of the weight whose gradient is made of them must have it all the same.
TEST(LinearCrossEntropy, SmallProbabilitiesReachFloat16Gradients) {
  constexpr int64_t kWords = 512, kWidth = 16, kManyRows = 64;
  at::manual_seed(8);
  auto values = at::randn({kWords, kWidth}) * 0.25;
  values[0] += 4;  // every row's hidden state is near (1, 1, …): this one is the likely word
  const auto states = at::randn({kManyRows, kWidth}) * 0.1 + 0.25;
  const auto targets = at::zeros({kManyRows}, at::kLong);
  const auto weights = at::full({kManyRows}, 0x1p16 / kManyRows, at::kDouble);
  const auto gradients = [&](at::ScalarType dtype, const auto& loss) {
    const auto hidden = states.to(at::kHalf).to(dtype).set_requires_grad(true);
    const auto weight = values.to(at::kHalf).to(dtype).set_requires_grad(true);
    auto found = torch::autograd::grad({loss(hidden, weight)}, {weight});
    return found[0].to(at::kDouble);
  };
  const auto check = [&](const auto& loss) {
    const auto wanted = gradients(at::kFloat, loss), found = gradients(at::kHalf, loss);
    const auto error = (found - wanted).norm(2, 1) / wanted.norm(2, 1);
    EXPECT_LT(error.max().template item<double>(), 0.005);
  };
  check([&](const auto& hidden, const auto& weight) {
    return linear_cross_entropy_sum({hidden, weight}, targets, weights);
  });
  check([&](const auto& hidden, const auto& weight) {
    return (linear_log_probs({hidden, weight}, targets).log_probs * weights).sum();
  });
}

TEST(LinearCrossEntropy, ASecondBackwardIsRefused) {
  const HeadCase c(at::kDouble);
  const auto loss = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, {});
  const auto again = [&] { torch::autograd::grad({loss}, {c.hidden}, {}, /*retain_graph=*/true); };
  again();
  EXPECT_THROW(again(), InternalError);
}

// The weight's rows beyond the vocabulary count nowhere, whatever they hold.
TEST(LinearCrossEntropy, PaddedRowsAreNotSeen) {
  for (const auto dtype : {at::kDouble, at::kBFloat16}) {
    const HeadCase c(dtype);
    const auto padded =
        at::cat({c.weight.detach(), at::ones({3, kChannels}, dtype)}).set_requires_grad(true);
    const HeadOptions plain{.logits_bytes = bytes_of_rows(4)},
        options{.logits_bytes = bytes_of_rows(5), .vocabulary = kVocabulary};
    const auto check = [&](const at::Tensor& expected, const at::Tensor& found) {
      EXPECT_TRUE(at::allclose(found, expected, 1e-12));
      const auto wanted = c.gradients((expected * c.weights).sum());
      const auto gradients = torch::autograd::grad({(found * c.weights).sum()}, {c.hidden, padded});
      const double tolerance = dtype == at::kDouble ? 1e-12 : 1e-2;
      EXPECT_TRUE(at::allclose(gradients[0], wanted[0], tolerance, tolerance));
      EXPECT_TRUE(
          at::allclose(gradients[1].narrow(0, 0, kVocabulary), wanted[1], tolerance, tolerance));
      EXPECT_EQ(gradients[1].narrow(0, kVocabulary, 3).count_nonzero().item<int64_t>(), 0);
    };
    check(linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, c.weights, plain),
          linear_cross_entropy_sum({c.hidden, padded}, c.targets, c.weights, options));
    check(linear_log_probs({c.hidden, c.weight}, c.targets, plain).log_probs,
          linear_log_probs({c.hidden, padded}, c.targets, options).log_probs);
  }
}

TEST(LinearLogProbs, EqualsThePlainFormulaForEveryChunkSize) {
  const HeadCase c(at::kDouble);
  const auto expected = c.plain_log_probs();
  const auto wanted = c.gradients((expected * c.weights).sum());
  for (const int64_t rows : {1, 4, 100}) {
    const auto found =
        linear_log_probs({c.hidden, c.weight}, c.targets, {.logits_bytes = bytes_of_rows(rows)})
            .log_probs;
    EXPECT_TRUE(at::allclose(found, expected, 1e-12)) << rows;
    const auto gradients = c.gradients((found * c.weights).sum());
    EXPECT_TRUE(at::allclose(gradients[0], wanted[0], 1e-11, 1e-13)) << rows;
    EXPECT_TRUE(at::allclose(gradients[1], wanted[1], 1e-11, 1e-13)) << rows;
  }
}

TEST(LinearLogProbs, ATemperatureDividesTheLogits) {
  const HeadCase c(at::kDouble);
  const double cap = 0.7, temperature = 1.7;
  const auto logits = (c.hidden.matmul(c.weight.t()) / cap).tanh() * cap;
  const auto valid = c.targets.ne(tensor::kIgnore);
  const auto all = at::log_softmax(logits / temperature, 1);
  const auto expected = all.gather(1, c.targets.clamp_min(0).unsqueeze(1)).squeeze(1) * valid;
  const auto wanted = c.gradients((expected * c.weights).sum());
  const auto entropy = -(all.exp() * all).sum(1) * valid;
  const auto padded = at::cat({c.weight, at::full({3, kChannels}, 9, c.weight.options())});
  const auto found = linear_log_probs({c.hidden, padded}, c.targets,
                                      {.logits_bytes = bytes_of_rows(4),
                                       .vocabulary = kVocabulary,
                                       .cap = cap,
                                       .temperature = temperature,
                                       .entropy = true,
                                       .mean_logit = true});
  EXPECT_TRUE(at::allclose(found.log_probs, expected, 1e-12));
  EXPECT_TRUE(at::allclose(found.entropy, entropy, 1e-12));
  EXPECT_TRUE(at::allclose(found.mean_logits, logits.mean(1) * valid, 1e-12));
  EXPECT_FALSE(found.entropy.requires_grad() || found.mean_logits.requires_grad());
  const auto gradients = c.gradients((found.log_probs * c.weights).sum());
  EXPECT_TRUE(at::allclose(gradients[0], wanted[0], 1e-11, 1e-13));
  EXPECT_TRUE(at::allclose(gradients[1], wanted[1], 1e-11, 1e-13));
  EXPECT_FALSE(linear_log_probs({c.hidden, c.weight}, c.targets).entropy.defined());
}

// As a sampler does it: rounded to 16 bits, a quotient would be another number than the sampler's.
TEST(LinearLogProbs, ATemperatureDividesWideLogits) {
  const HeadCase c(at::kBFloat16);
  const double temperature = 0.7;
  const auto logits = c.hidden.matmul(c.weight.t()).to(at::kFloat);
  const auto all = at::log_softmax(logits / temperature, 1);
  const auto valid = c.targets.ne(tensor::kIgnore);
  const auto expected = all.gather(1, c.targets.clamp_min(0).unsqueeze(1)).squeeze(1) * valid;
  const auto found = linear_log_probs({c.hidden, c.weight}, c.targets,
                                      {.temperature = temperature, .entropy = true});
  EXPECT_TRUE(at::allclose(found.log_probs, expected, 1e-6, 1e-6));
  EXPECT_TRUE(at::allclose(found.entropy, -(all.exp() * all).sum(1) * valid, 1e-6, 1e-6));
}

TEST(LinearCrossEntropy, CapsLogits) {
  const HeadCase c(at::kDouble);
  const double cap = 0.7;
  const auto expected = c.plain_log_probs(cap);
  const HeadOptions options{.logits_bytes = bytes_of_rows(4), .cap = cap};
  const auto found = linear_log_probs({c.hidden, c.weight}, c.targets, options).log_probs;
  const auto sum = linear_cross_entropy_sum({c.hidden, c.weight}, c.targets, c.weights, options);
  EXPECT_TRUE(at::allclose(found, expected, 1e-12, 1e-12));
  const auto loss = -(expected * c.weights).sum();
  EXPECT_TRUE(at::allclose(sum, loss, 1e-12));
  const auto wanted = c.gradients(loss);
  const auto of_sum = c.gradients(sum), of_rows = c.gradients(-(found * c.weights).sum());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::allclose(of_sum[i], wanted[i], 1e-10, 1e-12)) << i;
    EXPECT_TRUE(at::allclose(of_rows[i], wanted[i], 1e-10, 1e-12)) << i;
  }
}

// An adapter's part beside the weight, with DoRA's factor and without.
TEST(LinearCrossEntropy, TakesAnAdapterBesideTheWeight) {
  const HeadCase c(at::kDouble);
  constexpr int64_t kRank = 2;
  const auto leaf = [](at::IntArrayRef shape) {
    return at::randn(shape, at::kDouble).set_requires_grad(true);
  };
  const auto inner = leaf({kRows, kRank}), b = leaf({kVocabulary, kRank}),
             factor = leaf({kVocabulary});
  for (const double cap : {0.0, 0.7}) {
    for (const bool scaled : {false, true}) {
      const HeadProduct product{c.hidden, c.weight, inner, b, scaled ? factor : at::Tensor()};
      auto logits = c.hidden.matmul(c.weight.t()) + inner.matmul(b.t());
      if (scaled) logits = logits * factor;
      if (cap > 0) logits = (logits / cap).tanh() * cap;
      const auto index = c.targets.clamp_min(0).unsqueeze(1);
      const auto expected =
          at::log_softmax(logits, 1).gather(1, index).squeeze(1) * c.targets.ne(tensor::kIgnore);
      std::vector<at::Tensor> leaves{c.hidden, c.weight, inner, b};
      if (scaled) leaves.push_back(factor);
      const auto wanted = torch::autograd::grad({(expected * c.weights).sum()}, leaves);
      for (const int64_t rows : {1, 4, 100}) {
        const HeadOptions options{.logits_bytes = bytes_of_rows(rows), .cap = cap};
        const auto log_probs = linear_log_probs(product, c.targets, options).log_probs;
        const auto sum = linear_cross_entropy_sum(product, c.targets, c.weights, options);
        EXPECT_TRUE(at::allclose(log_probs, expected, 1e-12, 1e-12));
        EXPECT_TRUE(at::allclose(sum, -(expected * c.weights).sum(), 1e-12));
        const auto of_rows = torch::autograd::grad({(log_probs * c.weights).sum()}, leaves);
        const auto of_sum = torch::autograd::grad({-sum}, leaves);
        for (size_t i = 0; i < leaves.size(); ++i) {
          EXPECT_TRUE(at::allclose(of_rows[i], wanted[i], 1e-10, 1e-12)) << i << " " << rows;
          EXPECT_TRUE(at::allclose(of_sum[i], wanted[i], 1e-10, 1e-12)) << i << " " << rows;
        }
      }
    }
  }
}

// In 16 bits an adapter's fp32 parts keep gradients in fp32, near those of fp32 products.
TEST(LinearCrossEntropy, AdaptersBesideSixteenBitWeightsKeepWideGradients) {
  const LengthCase c;
  const auto inner = LengthCase::leaf(at::randn({LengthCase::kManyRows, 4}), at::kBFloat16),
             wide_inner = LengthCase::leaf(inner.detach(), at::kFloat);
  const auto b = LengthCase::leaf(at::randn({LengthCase::kWords, 4}) * 0.1, at::kFloat),
             factor = LengthCase::leaf(at::rand({LengthCase::kWords}) + 0.5, at::kFloat);
  const auto gradients = [&](const HeadProduct& product) {
    const auto loss = linear_cross_entropy_sum(product, c.targets, {});
    return torch::autograd::grad({loss}, {product.hidden, product.inner, b, factor});
  };
  const auto narrow = gradients({c.hidden, c.weight.detach(), inner, b, factor});
  const auto wide = gradients({c.wide_hidden, c.wide_weight.detach(), wide_inner, b, factor});
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow[i].scalar_type(), i < 2 ? at::kBFloat16 : at::kFloat);
    const auto distance = (narrow[i].to(at::kFloat) - wide[i]).norm() / wide[i].norm();
    EXPECT_LT(distance.item<double>(), 1e-2) << i;
  }
}

// transformers' LabelSmoother, written out; for every chunk size, with padded rows and caps.
TEST(LinearCrossEntropy, SmoothsLabels) {
  const HeadCase c(at::kDouble);
  const auto padded =
      at::cat({c.weight.detach(), at::ones({3, kChannels}, at::kDouble)}).set_requires_grad(true);
  for (const double cap : {0.0, 0.7}) {
    for (const double share : {0.1, 0.9}) {
      auto logits = c.hidden.matmul(c.weight.t());
      if (cap > 0) logits = (logits / cap).tanh() * cap;
      const auto valid = c.targets.ne(tensor::kIgnore);
      const auto mean = at::log_softmax(logits, 1).mean(1) * valid;
      const auto expected =
          -((c.plain_log_probs(cap) * (1 - share) + mean * share) * c.weights).sum();
      const auto wanted = c.gradients(expected * 3);
      for (const int64_t rows : {1, 4, 100}) {
        const HeadOptions options{.logits_bytes = bytes_of_rows(rows),
                                  .vocabulary = kVocabulary,
                                  .cap = cap,
                                  .smoothing = share};
        const auto loss =
            linear_cross_entropy_sum({c.hidden, padded}, c.targets, c.weights, options);
        EXPECT_TRUE(at::allclose(loss, expected, 1e-12)) << cap << " " << share << " " << rows;
        const auto found = torch::autograd::grad({loss * 3}, {c.hidden, padded});
        EXPECT_TRUE(at::allclose(found[0], wanted[0], 1e-10, 1e-12)) << cap << share << rows;
        EXPECT_TRUE(at::allclose(found[1].narrow(0, 0, kVocabulary), wanted[1], 1e-10, 1e-12));
        EXPECT_EQ(found[1].narrow(0, kVocabulary, 3).count_nonzero().item<int64_t>(), 0);
      }
    }
  }
}

TEST(LinearCrossEntropy, SmoothedSixteenBitGradientsStayNearTheWideOnes) {
  const LengthCase c;
  const HeadOptions options{.smoothing = 0.3};
  const auto loss = [&](const at::Tensor& hidden, const at::Tensor& weight) {
    return linear_cross_entropy_sum({hidden, weight}, c.targets, {}, options);
  };
  const auto narrow = torch::autograd::grad({loss(c.hidden, c.weight)}, {c.hidden, c.weight});
  const auto wide =
      torch::autograd::grad({loss(c.wide_hidden, c.wide_weight)}, {c.wide_hidden, c.wide_weight});
  for (size_t i = 0; i < 2; ++i) {
    const auto distance = (narrow[i].to(at::kFloat) - wide[i]).norm() / wide[i].norm();
    EXPECT_LT(distance.item<double>(), 1e-2) << i;
  }
}

}  // namespace
}  // namespace skein::ops
