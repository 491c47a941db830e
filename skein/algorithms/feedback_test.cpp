// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/feedback.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "skein/algorithms/test_answers.h"

namespace skein::algorithms {
namespace {

const std::vector<uint8_t> kDesirable{1, 0, 0, 1, 1, 0};

TEST(Feedback, IsItsFormula) {
  TestAnswers given;
  given.answers->alone = true;
  given.answers->desirable = kDesirable;
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : model->table().parameters) leaves.push_back(*parameter.slot);
  const tensor::Counts counts{.samples = 8, .desirable = 4};
  const auto reference = at::tensor(kReferences, at::kDouble);
  for (const bool with_kl : {true, false}) {
    std::vector<at::Tensor> looks(with_kl ? 3 : 1, reference);
    const Feedback algorithm(*model, {.with_kl = with_kl,
                                      .beta = 0.4,
                                      .desirable_weight = 1.5,
                                      .undesirable_weight = 0.75,
                                      .chosen_alpha = 0.2});
    const std::vector<double> statistics{0.6};
    const double kl = with_kl ? 0.6 : 0;
    at::Tensor expected = at::zeros({}, at::kDouble);
    for (size_t d = 0; d < 6; ++d) {
      const auto sum = numbers_of(*model, given.alone(d)).log_probs.sum();
      const auto lead = 0.4 * (sum - kReferences[d] - kl);
      if (kDesirable[d] != 0) {
        expected = expected + 1.5 * (1 - at::sigmoid(lead)) -
                   0.2 * 8 / 4 * sum / static_cast<double>(given.targets_of(d));
      } else {
        expected = expected + 0.75 * at::sigmoid(lead);
      }
    }
    const auto wanted = torch::autograd::grad({expected}, leaves);
    for (const auto* host : {&given.run, &given.rows}) {
      tensor::PlainUnits units;
      const auto part = algorithm.loss_sum(
          tensor::to_device(*host, at::kCPU),
          {.key = {.training = false}, .counts = counts, .looks = looks, .statistics = statistics},
          units);
      EXPECT_TRUE(at::allclose(part.loss, expected, 1e-10));
      const auto found = torch::autograd::grad({part.loss}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-9, 1e-12)) << i;
      }
      MetricSums sums(algorithm.metrics());
      sums.add(part.metrics);
      std::map<std::string, double> numbers;
      for (const auto& [name, value] : sums.numbers(sums.share(0, 1), 1)) numbers[name] = value;
      const auto reward = [&](size_t d) {
        const auto sum = numbers_of(*model, given.alone(d)).log_probs.sum().item<double>();
        return 0.4 * (sum - kReferences[d]);
      };
      EXPECT_NEAR(numbers.at("rewards/chosen"), (reward(0) + reward(3) + reward(4)) / 3, 1e-10);
      EXPECT_NEAR(numbers.at("rewards/rejected"), (reward(1) + reward(2) + reward(5)) / 3, 1e-10);
      EXPECT_EQ(numbers.count("kl"), with_kl ? 1U : 0U);
    }
  }
}

TEST(Feedback, TheKlIsThatOfTheStep) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const Feedback live(*model, {});
  ASSERT_EQ(live.passes().size(), 3U);
  EXPECT_TRUE(live.spans_step());
  // Of four answers: the reference's own, the policy's over others, the reference's over others.
  EXPECT_EQ(live.settle(std::vector<double>{-99, -10, -14}, {.samples = 4}),
            std::vector<double>{1});
  EXPECT_EQ(live.settle(std::vector<double>{-99, -14, -10}, {.samples = 4}),
            std::vector<double>{0});
  const Feedback without(*model, {.with_kl = false});
  EXPECT_EQ(without.passes().size(), 1U);
  EXPECT_FALSE(without.spans_step());
}

TEST(Feedback, ABatchWithoutAnswersGivesZero) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const Feedback algorithm(*model, {});
  const auto batch = without_answers(/*alone=*/true);
  tensor::PlainUnits units;
  const std::vector<at::Tensor> looks(3, algorithm.look(batch, {*model, units}).detach());
  const std::vector<double> statistics{0.5};
  const auto part = algorithm.loss_sum(
      batch, {.counts = {.samples = 3}, .looks = looks, .statistics = statistics}, units);
  EXPECT_EQ(part.loss.item<double>(), 0);
}

}  // namespace
}  // namespace skein::algorithms
