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

#include "skein/algorithms/pretrain.h"
#include "skein/model/model.h"
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
  Update update(const std::vector<tensor::Batch>& batches, int64_t num_targets) {
    return train::update({algorithm, sharded, optimizer, phases}, {batches, num_targets, {}}, {});
  }
  // All of it, in float64.
  at::Tensor gradient() const {
    std::vector<at::Tensor> parts;
    for (const auto& slice : sharded.gradient_slices()) parts.push_back(slice.data.to(at::kDouble));
    return at::cat(parts);
  }
};

TEST(Update, IsTheMeanOverTheTargetsOfAllMicroBatches) {
  for (const auto& config : kModels) {
    Fixture run(config, at::kDouble);
    const std::vector<tensor::Batch> batches = {make_batch(0), make_batch(kRows)};
    const int64_t num_targets = 2 * kRows * kTokens;
    const auto result = run.update(batches, num_targets);

    tensor::PlainUnits units;
    at::Tensor loss;
    for (const auto& batch : batches) {
      const auto part = run.algorithm.loss_sum(batch, {}, 1, units) / num_targets;
      loss = loss.defined() ? loss + part : part;
    }
    EXPECT_TRUE(at::allclose(result.loss, loss, 1e-13));
    std::vector<at::Tensor> leaves, expected;
    for (const auto& slice : run.sharded.gradient_slices()) {
      leaves.push_back(*run.model->table().find(slice.name)->slot);
    }
    for (const auto& part : torch::autograd::grad({loss}, leaves))
      expected.push_back(part.flatten());
    EXPECT_TRUE(at::allclose(run.gradient(), at::cat(expected), 1e-9, 1e-14));
    EXPECT_NEAR(result.norm.norm.item<double>(), run.gradient().norm().item<double>(), 1e-12);
  }
}

// How long is the bf16 gradient along the fp32 one? The number of targets must not show in it: a
// factor that is rounded to bf16 is off by up to 0.4 %, each count by another part of it. What is
// left is the rounding of bf16 sums below the head; ops/linear_cross_entropy_test.cpp holds the
// head to 1e-4.
TEST(Update, TheLengthOfBf16GradientsDoesNotDependOnTheNumberOfTargets) {
  const std::vector<tensor::Batch> batches = {make_batch(0)};
  for (const auto& config : kModels) {
    Fixture narrow(config, at::kBFloat16), wide(config, at::kFloat);
    std::vector<double> lengths;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t num_targets = 1000 + 137 * i;
      narrow.update(batches, num_targets);
      wide.update(batches, num_targets);
      const auto along = wide.gradient();
      lengths.push_back((at::dot(narrow.gradient(), along) / at::dot(along, along)).item<double>());
    }
    const auto [least, most] = std::ranges::minmax(lengths);
    EXPECT_LE(most - least, 1e-3) << config << least << " to " << most;
  }
}

}  // namespace
}  // namespace skein::train
