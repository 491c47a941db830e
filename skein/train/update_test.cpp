// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "skein/algorithms/pretrain.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/plan/hf_config.h"

namespace skein::train {
namespace {

constexpr int64_t kRows = 4, kTokens = 32, kVocabulary = 1024;

const std::vector<std::string> kModels = {
    R"({"model_type": "llama", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 384,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})",
    R"({"model_type": "gpt2", "vocab_size": 1024, "n_positions": 32, "n_embd": 256, "n_layer": 2,
        "n_head": 4, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0})"};

tensor::Batch make_batch(int64_t first) {
  const auto rows = at::arange(first, first + kRows), columns = at::arange(kTokens + 1);
  const auto text =
      (rows.unsqueeze(1) * 131 + columns * columns * 7 + rows.unsqueeze(1) * columns) % kVocabulary;
  return {text.slice(1, 0, kTokens).contiguous(), text.slice(1, 1, kTokens + 1).contiguous(), rows,
          kRows * kTokens};
}

// Targets that count, of which some are left out: micro-batches have unequally many.
tensor::Batch without(tensor::Batch batch, int64_t count) {
  batch.targets.flatten().slice(0, 0, count).fill_(tensor::kIgnore);
  batch.num_targets -= count;
  return batch;
}

// A model with its first weights, and what one update of it needs.
struct Fixture {
  std::unique_ptr<model::Model> model;
  algorithms::Pretrain algorithm;
  parallel::Sharded sharded;
  optim::AdamW optimizer;
  Phases phases;

  Fixture(const std::string& config, at::ScalarType dtype)
      : model(model::build(plan::parse_hf_config(config, "test"), {.dtype = dtype})),
        algorithm(*model),
        sharded(model->table(), {}, comm::Group()),
        optimizer(initialised().owned_ranges(), {}, sharded.memory()) {}

  parallel::Sharded& initialised() {
    sharded.initialise(5);
    return sharded;
  }
  // With a learning rate of zero the weights stay, and each call finds the same gradient.
  Update update(const std::vector<tensor::Batch>& batches, int64_t num_targets,
                double max_grad_norm = 0, double loss_scale = 1) {
    for (const auto& slice : first_moments()) slice.data.zero_();
    return train::update({algorithm, sharded, optimizer, phases},
                         {batches, {.targets = num_targets}, {}},
                         {.max_grad_norm = max_grad_norm, .loss_scale = loss_scale});
  }
  // What the optimizer took for the gradient, by parameter, in float64: the first moment began at
  // zero.
  std::map<std::string, at::Tensor> gradients() {
    std::map<std::string, at::Tensor> found;
    for (const auto& slice : first_moments()) {
      const auto name = slice.name.substr(0, slice.name.size() - kMoment.size());
      found[name] = slice.data.to(at::kDouble) / (1 - optimizer.options().adam_beta1);
    }
    return found;
  }
  at::Tensor gradient() {
    std::vector<at::Tensor> parts;
    for (const auto& [name, part] : gradients()) parts.push_back(part);
    return at::cat(parts);
  }

 private:
  static constexpr std::string_view kMoment = ".exp_avg";
  std::vector<tensor::TensorSlice> first_moments() {
    auto slices = sharded.slices_to_save(optimizer.states());
    std::erase_if(slices, [](const auto& slice) { return !slice.name.ends_with(kMoment); });
    return slices;
  }
};

TEST(Update, TheNormaliserIsAPowerOfTwoAndARest) {
  for (const int64_t count : {1, 2, 3, 1000, 4096, 65537, 1 << 30}) {
    const auto [power_of_two, rest] = normaliser(count);
    int exponent = 0;
    EXPECT_EQ(std::frexp(power_of_two, &exponent), 0.5);
    EXPECT_GT(rest, 0.5);
    EXPECT_LE(rest, 1);
    EXPECT_DOUBLE_EQ(power_of_two * rest, 1.0 / static_cast<double>(count));
  }
}

// Also where the scale has come down to 1, or begins there: offloaded ranges wait for the norm.
TEST(Update, AnOverflowOfFloat16IsLeftOutAtEveryScale) {
  config::RunConfig config;
  config.optimizer.max_grad_norm = 0;
  EXPECT_FALSE(update_options({.config = config, .total = 10}, 0).skips_non_finite);
  config::LossScaleConfig scale;
  scale.initial_scale_power = 0;
  const plan::LossScaler scaler(scale, {});
  ASSERT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(
      update_options({.config = config, .scaler = &scaler, .total = 10}, 0).skips_non_finite);
}

TEST(Update, IsTheMeanOverTheTargetsOfAllMicroBatches) {
  for (const auto& config : kModels) {
    Fixture run(config, at::kDouble);
    const std::vector<tensor::Batch> batches = {make_batch(0), without(make_batch(kRows), 57)};
    const int64_t num_targets = batches[0].num_targets + batches[1].num_targets;  // 199
    const auto result = run.update(batches, num_targets);

    tensor::PlainUnits units;
    at::Tensor loss;
    for (const auto& batch : batches) {
      const auto part = run.algorithm.loss_sum(batch, {}, units).loss / num_targets;
      loss = loss.defined() ? loss + part : part;
    }
    EXPECT_TRUE(at::allclose(result.loss, loss, 1e-13));
    const auto found = run.gradients();
    std::vector<at::Tensor> leaves, expected;
    for (const auto& [name, part] : found) leaves.push_back(*run.model->table().find(name)->slot);
    for (const auto& part : torch::autograd::grad({loss}, leaves))
      expected.push_back(part.flatten());
    EXPECT_TRUE(at::allclose(run.gradient(), at::cat(expected), 1e-9, 1e-14));
    const double norm = run.gradient().norm().item<double>();
    EXPECT_NEAR(result.norm.norm.item<double>(), norm, 1e-12);

    // What lies in memory is neither scaled nor clipped.
    const auto clipped = run.update(batches, num_targets, norm / 2);
    EXPECT_NEAR(clipped.norm.norm.item<double>(), norm, 1e-12);
    EXPECT_NEAR(run.gradient().norm().item<double>(), norm / 2, 1e-6 * norm);
    const double rest = normaliser(num_targets).rest;
    for (const auto& slice : run.sharded.gradient_slices()) {
      EXPECT_TRUE(at::allclose(slice.data * rest, found.at(slice.name), 1e-12)) << slice.name;
    }
  }
}

TEST(Update, ALossScaleLeavesLossAndGradientAsTheyAre) {
  Fixture run(kModels[0], at::kDouble);
  const std::vector<tensor::Batch> batches = {make_batch(0), without(make_batch(kRows), 57)};
  const auto plain = run.update(batches, 199);
  const auto gradient = run.gradient();
  const auto scaled = run.update(batches, 199, 0, 0x1p16);
  EXPECT_EQ(plain.loss.item<double>(), scaled.loss.item<double>());
  EXPECT_EQ(plain.norm.norm.item<double>(), scaled.norm.norm.item<double>());
  EXPECT_TRUE(at::allclose(run.gradient(), gradient, 1e-13, 0));
}

// A gradient that float16 cannot hold, one that it can with a scale, and one that is too large.
TEST(Update, ALossScaleSavesFloat16FromVanishingAndFromNothingElse) {
  constexpr int64_t kTargets = 1 << 20;
  Fixture wide(kModels[0], at::kFloat), half(kModels[0], at::kHalf);
  const std::vector<tensor::Batch> batches = {make_batch(0)};
  wide.update(batches, kTargets);
  const auto expected = wide.gradient();
  const auto error = [&](double scale) {
    half.update(batches, kTargets, 0, scale);
    return ((half.gradient() - expected).norm() / expected.norm()).item<double>();
  };
  EXPECT_GT(error(1), 0.05);
  EXPECT_LT(error(0x1p16), 0.02);
  EXPECT_FALSE(std::isfinite(half.update(batches, kTargets, 0, 0x1p40).norm.norm.item<double>()));
}

// How long is the bf16 gradient along the fp32 one? The number of targets must not show in it: a
// factor that is rounded to bf16 is off by up to 0.4 %, each count by another part of it, and one
// that is no power of two makes bf16 sums round differently, for up to 0.07 %.
TEST(Update, TheLengthOfBf16GradientsDoesNotDependOnTheNumberOfTargets) {
  const std::vector<tensor::Batch> batches = {make_batch(0)};
  for (const auto& config : kModels) {
    Fixture narrow(config, at::kBFloat16), wide(config, at::kFloat);
    wide.update(batches, 1);
    const auto sum = wide.gradient();  // without a normaliser
    std::vector<double> lengths;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t num_targets = 1000 + 137 * i;
      narrow.update(batches, num_targets);
      const double along = (at::dot(narrow.gradient(), sum) / at::dot(sum, sum)).item<double>();
      lengths.push_back(along * static_cast<double>(num_targets));
    }
    const auto [least, most] = std::ranges::minmax(lengths);
    EXPECT_NEAR(least, 1, 0.05) << config;
    EXPECT_LE(most - least, 1e-4) << config << least << " to " << most;
  }
}

// Weights after some steps, by name.
std::map<std::string, at::Tensor> trained(const parallel::ShardOptions& shards,
                                          bool skips_non_finite) {
  const auto model = model::build(
      plan::parse_hf_config(R"({"model_type": "llama", "vocab_size": 1024, "hidden_size": 32,
                                "intermediate_size": 48, "num_hidden_layers": 3,
                                "num_attention_heads": 2, "num_key_value_heads": 1})",
                            "test"),
      {});
  const algorithms::Pretrain algorithm(*model);
  parallel::Sharded sharded(model->table(), shards, comm::Group());
  sharded.initialise(5);
  optim::AdamW optimizer(sharded.owned_ranges(), {}, sharded.memory());
  Phases phases;
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<tensor::Batch> batches = {make_batch(step), make_batch(step + kRows)};
    update({algorithm, sharded, optimizer, phases},
           {batches, {.targets = 2 * kRows * kTokens}, {.step = step}},
           {.learning_rate = 1e-2, .skips_non_finite = skips_non_finite});
  }
  EXPECT_EQ(optimizer.num_updates(), 3);
  std::map<std::string, at::Tensor> weights;
  for (const auto& slice : sharded.slices_to_save(Access::kRead))
    weights[slice.name] = slice.data.clone();
  return weights;
}

// Whether the host updates while backward runs, or after the norm, or nothing is offloaded at all.
TEST(Update, AnUpdateInBackwardIsTheSame) {
  for (const auto& stage : {parallel::kZero1, parallel::kZero3}) {
    const auto plain = trained({.stage = stage}, /*skips_non_finite=*/false);
    for (const auto& [ratio, skips] : {std::pair{1.0, true}, {1.0, false}, {0.5, false}}) {
      const auto found = trained(
          {.stage = stage, .offload = {.states = Medium::kPinnedHost, .ratio = ratio}}, skips);
      for (const auto& [name, data] : plain) EXPECT_TRUE(data.equal(found.at(name))) << name;
    }
  }
}

}  // namespace
}  // namespace skein::train
