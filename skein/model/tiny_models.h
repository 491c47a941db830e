// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tiny models and batches for the tests of this folder.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skein/model/model.h"

namespace skein::model {

inline const std::string kTinyLlama =
    R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false)";
inline const std::string kTinyGpt =
    R"({"model_type": "gpt2", "vocab_size": 17, "n_positions": 9, "n_embd": 8, "n_layer": 2,
        "n_head": 2)";

// The start of a tiny config.json of every family: heads of at least two, 9 positions, 17 tokens.
inline std::vector<std::string> tiny_families() {
  return {
      kTinyLlama,
      kTinyGpt,
  };
}

// `more` holds further keys, or other values of some.
inline plan::HfConfig tiny_config(const std::string& start, const std::string& more = "") {
  auto config = nlohmann::json::parse(start + "}");
  if (!more.empty()) config.update(nlohmann::json::parse("{" + more.substr(1) + "}"));
  return plan::parse_hf_config(config.dump(), "tiny");
}

// Every parameter random, so that none (biases, LoRA's B) hides behind a zero.
inline std::unique_ptr<Model> tiny_model(const plan::HfConfig& config, BuildOptions options = {}) {
  options.dtype = at::kDouble;
  auto model = build(config, options);
  at::manual_seed(9);
  for (const auto& parameter : model->table().parameters) {
    *parameter.slot =
        (at::randn(parameter.shape, at::kDouble) * 0.4).set_requires_grad(parameter.trainable);
  }
  return model;
}

inline tensor::Batch tiny_batch(int64_t rows, int64_t tokens) {
  at::manual_seed(10);
  tensor::Batch batch;
  batch.tokens = at::randint(0, 17, {rows, tokens}, at::kLong);
  batch.targets = at::randint(0, 17, {rows, tokens}, at::kLong);
  batch.targets.select(1, tokens - 1).fill_(tensor::kIgnore);
  batch.documents = at::arange(40, 40 + rows, at::kLong);
  batch.num_targets = rows * (tokens - 1);
  return batch;
}

constexpr tensor::StepKey kTinyStep{.seed = 1, .step = 2};

inline at::Tensor loss_sum(const Model& model, const tensor::Batch& batch, tensor::Units& units) {
  const auto hidden = model.forward(batch, kTinyStep, units);
  return model.head_loss_sum(hidden, batch.targets, {}, units);
}

}  // namespace skein::model
