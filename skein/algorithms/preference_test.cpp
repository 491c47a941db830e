// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "skein/algorithms/preference_losses.h"
#include "skein/algorithms/test_answers.h"

namespace skein::algorithms {
namespace {

// As preference_losses.h takes them, each answer computed alone.
PairTerms terms_of(const model::Model& model, const TestAnswers& given,
                   const std::optional<double>& ld_alpha = {}) {
  std::vector<at::Tensor> sums, counts;
  for (size_t d = 0; d < 6; ++d) {
    const auto values = numbers_of(model, given.alone(d)).log_probs;
    const int64_t own = given.targets_of(d), other = given.targets_of(d ^ 1);
    const int64_t shared = std::min(own, other);
    EXPECT_EQ(values.numel(), own);
    auto sum = values.narrow(0, 0, shared).sum();
    sum = sum + ld_alpha.value_or(1) * values.narrow(0, shared, own - shared).sum();
    sums.push_back(sum);
    counts.push_back(at::scalar_tensor(static_cast<double>(own), at::kDouble));
  }
  const auto half = [&](const std::vector<at::Tensor>& all, size_t first) {
    return at::stack({all[first], all[first + 2], all[first + 4]});
  };
  const auto references = at::tensor(kReferences, at::kDouble).view({3, 2});
  return {{half(sums, 0), references.select(1, 0), half(counts, 0)},
          {half(sums, 1), references.select(1, 1), half(counts, 1)}};
}

std::map<std::string, double> numbers_in(const Algorithm& algorithm, const Part& part) {
  MetricSums sums(algorithm.metrics());
  sums.add(part.metrics);
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : sums.numbers(sums.share(0, 1), 1)) numbers[name] = value;
  return numbers;
}

struct Case {
  PreferenceOptions options;
  const char* name;
};

TEST(Preference, IsTheSumOfItsLosses) {
  using enum PreferenceLoss;
  const std::vector<Case> cases{
      {{}, "sigmoid"},
      {{.losses = {kIpo}, .weights = {1}}, "ipo"},
      {{.ld_alpha = 0.3}, "ld_alpha"},
      {{.losses = {kSigmoid, kHinge, kSft}, .weights = {0.5, 2, 0.25}}, "three"},
      {{.rpo_alpha = 0.7, .chosen_alpha = 0.2}, "with -log p"},
      {{.losses = {kOrpo}, .weights = {1}, .has_reference = false}, "orpo"},
      {{.losses = {kSimpo}, .weights = {1}, .has_reference = false}, "simpo"}};
  const TestAnswers given;
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : model->table().parameters) leaves.push_back(*parameter.slot);
  const tensor::Counts counts{.samples = 9, .chosen_targets = 30};  // of a larger step
  const std::vector<at::Tensor> looks{at::tensor(kReferences, at::kDouble)};
  for (const auto& [options, name] : cases) {
    const Preference algorithm(*model, options);
    const auto terms = terms_of(*model, given, options.ld_alpha);
    at::Tensor expected = at::zeros({}, at::kDouble);
    for (size_t k = 0; k < options.losses.size(); ++k) {
      const double factor = options.losses[k] == kSft ? 9.0 / 30 : 1;
      expected = expected + options.weights[k] * factor *
                                pair_losses(options.losses[k], terms, options.loss).sum();
    }
    expected = expected - options.rpo_alpha * 9.0 / 30 * terms.chosen.log_prob.sum() -
               options.chosen_alpha * (terms.chosen.log_prob / terms.chosen.num_targets).sum();
    expected = 4 * expected;
    const auto wanted = torch::autograd::grad({expected}, leaves);
    for (const auto* host : {&given.run, &given.rows}) {
      tensor::PlainUnits units;
      const auto part = algorithm.loss_sum(
          tensor::to_device(*host, at::kCPU),
          {.key = {.training = false}, .weight = 4, .counts = counts, .looks = looks}, units);
      EXPECT_NEAR(part.loss.item<double>(), expected.item<double>(), 1e-9) << name;
      const auto found = torch::autograd::grad({part.loss}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-9, 1e-12)) << name << " " << i;
      }
    }
  }
}

TEST(Preference, TellsWhatTrlTells) {
  const TestAnswers given;
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const Preference algorithm(*model, {.loss = {.beta = 0.3}});
  const auto terms = terms_of(*model, given);
  const std::vector<at::Tensor> looks{at::tensor(kReferences, at::kDouble)};
  tensor::PlainUnits units;
  const auto part = algorithm.loss_sum(tensor::to_device(given.run, at::kCPU),
                                       {.key = {.training = false}, .looks = looks}, units);
  const auto numbers = numbers_in(algorithm, part);
  const auto chosen = 0.3 * (terms.chosen.log_prob - terms.chosen.reference);
  const auto rejected = 0.3 * (terms.rejected.log_prob - terms.rejected.reference);
  std::vector<at::Tensor> logits[2];
  for (size_t d = 0; d < 6; ++d) {
    logits[d % 2].push_back(numbers_of(*model, given.alone(d)).mean_logits);
  }
  const std::map<std::string, at::Tensor> expected{
      {"rewards/chosen", chosen.mean()},
      {"rewards/rejected", rejected.mean()},
      {"rewards/accuracies", (chosen > rejected).to(at::kDouble).mean()},
      {"rewards/margins", (chosen - rejected).mean()},
      {"logps/chosen", terms.chosen.log_prob.mean()},
      {"logps/rejected", terms.rejected.log_prob.mean()},
      {"logits/chosen", at::cat(logits[0]).mean()},
      {"logits/rejected", at::cat(logits[1]).mean()}};
  ASSERT_EQ(numbers.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_NEAR(numbers.at(name), value.item<double>(), 1e-10) << name;
  }
}

// What the reference is asked, with its adapters off, is what the loss calls it.
TEST(Preference, LooksAtTheSumsOfAnswers) {
  const TestAnswers given;
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const auto terms = terms_of(*model, given, 0.3);
  const Preference algorithm(*model, {.ld_alpha = 0.3});
  ASSERT_EQ(algorithm.passes().size(), 1U);
  tensor::PlainUnits units;
  const auto looked = algorithm.look(tensor::to_device(given.run, at::kCPU), {*model, units});
  EXPECT_TRUE(at::allclose(looked.view({3, 2}),
                           at::stack({terms.chosen.log_prob, terms.rejected.log_prob}, 1), 1e-10));
  const Preference alone(
      *model, {.losses = {PreferenceLoss::kOrpo}, .weights = {1}, .has_reference = false});
  EXPECT_TRUE(alone.passes().empty());
}

TEST(Preference, ABatchWithoutPairsGivesZero) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const Preference algorithm(*model, {.rpo_alpha = 1});
  const auto batch = without_answers();
  tensor::PlainUnits units;
  const std::vector<at::Tensor> looks{algorithm.look(batch, {*model, units}).detach()};
  EXPECT_EQ(looks[0].numel(), 0);
  const auto part = algorithm.loss_sum(batch, {.counts = {.samples = 3}, .looks = looks}, units);
  EXPECT_EQ(part.loss.item<double>(), 0);
  const auto gradient =
      torch::autograd::grad({part.loss}, {*model->table().parameters.front().slot});
  EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
  EXPECT_TRUE(numbers_in(algorithm, part).empty());
}

}  // namespace
}  // namespace skein::algorithms
