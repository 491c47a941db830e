// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Prompts that are computed once for all of their answers: the same losses, gradients and numbers
// as of answers that are computed each behind its prompt.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/algorithms/algorithm.h"
#include "skein/core/error.h"
#include "skein/data/runs/groups.h"
#include "skein/model/tiny_models.h"

namespace skein::train {
namespace {

using algorithms::Options;
using algorithms::PreferenceOptions;
using enum config::PreferenceLoss;

// So many answers to each prompt, whose tokens are told apart by their places.
std::vector<data::Group> groups_of(int64_t answers) {
  std::vector<data::Group> groups;
  int64_t token = 3, key = 40;
  const auto tokens = [&](int64_t count) {
    std::vector<int64_t> made;
    for (int64_t i = 0; i < count; ++i) made.push_back(token = (token * 5 + 7) % 17);
    return made;
  };
  for (const int64_t prompt : {4, 1, 6, 2}) {
    auto& group = groups.emplace_back(data::Group{.prompt = tokens(prompt)});
    for (int64_t i = 0; i < answers; ++i) {
      group.answers.push_back(tokens(1 + (prompt + 2 * i) % 3));  // nine tokens at most together
      group.documents.push_back(key++);
    }
  }
  return groups;
}

enum class Judged { kPairs, kAlone };

tensor::Batch batch_of(std::span<const data::Group> groups, bool shares, Judged judged) {
  auto host = data::make_groups(groups, shares);
  EXPECT_EQ(host.continues.empty(), !shares || groups.empty());
  auto answers = std::make_shared<tensor::HostAnswers>(*host.answers);
  answers->alone = judged == Judged::kAlone;
  for (size_t i = 0; i < answers->documents.size(); ++i) {
    if (answers->alone) answers->desirable.push_back(i % 3 == 1 ? 0 : 1);
    if (!answers->alone && i % 2 == 1) answers->margins.push_back(0.25 * static_cast<double>(i));
  }
  host.answers = answers;
  return tensor::to_device(host, at::kCPU);
}

struct Seen {
  at::Tensor loss, values, counts;
  std::vector<at::Tensor> gradients, looks;
};

Seen see(const model::Model& model, const Options& options, const tensor::Batch& batch) {
  const auto algorithm = algorithms::build(options, model);
  tensor::PlainUnits units;
  Seen seen;
  for (size_t pass = 0; pass < algorithm->passes().size(); ++pass) {
    // Another reference than the policy, which none is compared with in earnest.
    seen.looks.push_back(algorithm->look(batch, {model, units}).detach() * 0.9 - 0.3);
  }
  const std::vector<double> statistics{0.4};
  const auto part = algorithm->loss_sum(
      batch,
      {.key = {.training = false},
       .weight = 2,
       .counts = {.targets = 50, .samples = 12, .chosen_targets = 30, .desirable = 6},
       .looks = seen.looks,
       .statistics = statistics},
      units);
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : model.table().parameters) leaves.push_back(*parameter.slot);
  seen.loss = part.loss;
  seen.values = part.metrics.values;
  seen.counts = part.metrics.counts;
  seen.gradients = torch::autograd::grad({part.loss}, leaves);
  return seen;
}

void expect_near(const Seen& found, const Seen& expected, const std::string& what) {
  const auto near = [&](const at::Tensor& one, const at::Tensor& other, const char* name) {
    EXPECT_TRUE(at::allclose(one, other, 1e-10, 1e-12, /*equal_nan=*/true)) << what << ": " << name;
  };
  near(found.loss, expected.loss, "loss");
  near(found.values, expected.values, "metrics");
  near(found.counts, expected.counts, "counts");
  ASSERT_EQ(found.looks.size(), expected.looks.size());
  for (size_t i = 0; i < found.looks.size(); ++i) near(found.looks[i], expected.looks[i], "looks");
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const auto size = expected.gradients[i].abs().max().item<double>();
    EXPECT_TRUE(at::allclose(found.gradients[i], expected.gradients[i], 1e-10, 1e-10 * size))
        << what << ": gradient " << i;
  }
}

void expect_shared_is_plain(const model::Model& model, const Options& options, int64_t answers,
                            Judged judged, const std::string& what) {
  const auto groups = groups_of(answers);
  expect_near(see(model, options, batch_of(groups, true, judged)),
              see(model, options, batch_of(groups, false, judged)), what);
}

// What would draw is off.
constexpr const char* kNoDropout =
    R"(, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0, "attention_dropout": 0)";

std::vector<PreferenceOptions> all_losses() {
  return {{},
          {.losses = {kIpo}, .weights = {1}},
          {.losses = {kSigmoid, kHinge, kSft}, .weights = {0.5, 2, 0.25}},
          {.rpo_alpha = 0.7, .chosen_alpha = 0.2, .ld_alpha = 0.3},
          {.losses = {kOrpo}, .weights = {1}, .has_reference = false},
          {.losses = {kSimpo}, .weights = {1}, .has_reference = false}};
}

TEST(SharedPrompts, PreferencesAreThoseOfWholeDocuments) {
  for (const auto& family : model::tiny_families()) {
    const auto config = model::tiny_config(family, kNoDropout);
    const auto model = model::tiny_model(config);
    for (const auto& options : all_losses()) {
      expect_shared_is_plain(*model, options, 2, Judged::kPairs, config.family);
    }
    expect_shared_is_plain(*model, PreferenceOptions{}, 4, Judged::kPairs, config.family);
  }
}

TEST(SharedPrompts, ScoresAreThoseOfWholeDocuments) {
  for (const auto& family : model::tiny_families()) {
    const auto config = plan::with_score(model::tiny_config(family, kNoDropout));
    const auto model = model::tiny_model(config);
    expect_shared_is_plain(*model, algorithms::RewardOptions{.centring = 0.3}, 2, Judged::kPairs,
                           config.family);
  }
}

TEST(SharedPrompts, AnswersJudgedAloneAreThoseOfWholeDocuments) {
  for (const auto& family : model::tiny_families()) {
    const auto config = model::tiny_config(family, kNoDropout);
    const auto model = model::tiny_model(config);
    for (const int64_t answers : {2, 5}) {
      expect_shared_is_plain(*model, algorithms::FeedbackOptions{.chosen_alpha = 0.2}, answers,
                             Judged::kAlone, config.family);
    }
  }
}

TEST(SharedPrompts, AdaptersSeeTheSame) {
  const auto config = model::tiny_config(model::kTinyLlama);
  for (const bool dora : {false, true}) {
    const auto tuning =
        model::tiny_lora(dora ? R"("target_modules": "all-linear", "use_dora": true)"
                              : R"("target_modules": "all-linear")");
    const auto model = model::tiny_model(config, {.tuning = tuning});
    const auto loss_of = [&](bool shares) {
      const auto batch = batch_of(groups_of(2), shares, Judged::kPairs);
      tensor::PlainUnits units;
      return model::loss_sum(*model, batch, units);
    };
    EXPECT_NEAR(loss_of(true).item<double>(), loss_of(false).item<double>(), 1e-10);
  }
}

// Both turn alike: every document is longer than the short factors reach, or none is.
TEST(SharedPrompts, RotationsFollowTheWholeDocument) {
  const auto config = model::tiny_config(
      model::kTinyPhi, std::string(model::kTinyLongRope) + R"(, "resid_pdrop": 0)");
  const auto model = model::tiny_model(config);
  const auto part_of = [&](int64_t prompt, std::vector<int64_t> lengths, bool shares) {
    data::Group group{.prompt = std::vector<int64_t>(static_cast<size_t>(prompt), 5)};
    for (const int64_t length : lengths) {
      group.answers.emplace_back(static_cast<size_t>(length), 7);
      group.documents.push_back(std::ssize(group.documents));
    }
    return see(*model, PreferenceOptions{}, batch_of(std::span(&group, 1), shares, Judged::kPairs));
  };
  for (const auto& [prompt, lengths] :
       {std::pair<int64_t, std::vector<int64_t>>{4, {2, 5}}, {2, {1, 3}}}) {
    expect_near(part_of(prompt, lengths, true), part_of(prompt, lengths, false), "longrope");
  }
  EXPECT_THROW(part_of(4, {1, 3}, true), InternalError) << "one short, one long";
}

TEST(SharedPrompts, ABatchWithoutGroupsGivesZero) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const auto seen = see(*model, PreferenceOptions{}, batch_of({}, true, Judged::kPairs));
  EXPECT_EQ(seen.loss.item<double>(), 0);
  for (const auto& gradient : seen.gradients) EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
}

TEST(SharedPrompts, AllowNoDraws) {
  const auto batch = batch_of(groups_of(2), true, Judged::kPairs);
  for (const auto& family : {model::kTinyGpt, model::kTinyPhi}) {
    const auto model = model::tiny_model(model::tiny_config(family));
    tensor::PlainUnits units;
    EXPECT_THROW(model->forward(batch, {.training = true}, units), InternalError);
    model->forward(batch, {.training = false}, units);
  }
  const auto noisy =
      model::tiny_model(model::tiny_config(model::kTinyLlama), {.embedding_noise = 5});
  tensor::PlainUnits units;
  EXPECT_THROW(noisy->forward(batch, {.training = true}, units), InternalError);
}

}  // namespace
}  // namespace skein::train
