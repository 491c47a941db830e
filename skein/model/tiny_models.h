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
#include <string>
#include <vector>

#include "skein/core/json.h"
#include "skein/model/model.h"

namespace skein::model {

inline const std::string kTinyLlama =
    R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false)";
inline const std::string kTinyGpt =
    R"({"model_type": "gpt2", "vocab_size": 17, "n_positions": 9, "n_embd": 8, "n_layer": 2,
        "n_head": 2)";

// What the shared layers read, in the words of all families but gpt2: two heads share a key.
inline std::string tiny_decoder(const std::string& family, const std::string& more) {
  return R"({"model_type": ")" + family +
         R"(", "vocab_size": 17, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 9)" +
         more;
}
inline const std::string kTinyMistral = tiny_decoder("mistral", R"(, "sliding_window": 3)");
inline const std::string kTinyQwen2 = tiny_decoder(
    "qwen2", R"(, "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 1)");
inline const std::string kTinyQwen3 = tiny_decoder("qwen3", R"(, "head_dim": 6)");
inline const std::string kTinyGemma2 =
    tiny_decoder("gemma2", R"(, "head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 3,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0)");
inline const std::string kTinyGemma3 =
    tiny_decoder("gemma3_text", R"(, "head_dim": 6, "query_pre_attn_scalar": 7,
        "sliding_window": 3, "sliding_window_pattern": 2, "rope_local_base_freq": 50.0)");
inline const std::string kTinyPhi =
    tiny_decoder("phi3", R"(, "head_dim": 4, "partial_rotary_factor": 0.5, "resid_pdrop": 0.2)");

// Of kTinyPhi: five positions with the short factors.
inline const std::string kTinyLongRope =
    R"(, "partial_rotary_factor": 1, "original_max_position_embeddings": 5,
        "rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1.5], "long_factor": [2, 9]})";

// The start of a tiny config.json of every family: heads of at least two, 9 positions, 17 tokens.
inline std::vector<std::string> tiny_families() {
  return {
      kTinyLlama,  kTinyMistral, kTinyQwen2, kTinyQwen3,
      kTinyGemma2, kTinyGemma3,  kTinyPhi,   kTinyGpt,
  };
}

// `more` holds further keys, or other values of some.
inline plan::HfConfig tiny_config(const std::string& start, const std::string& more = "") {
  auto config = parse_json(start + "}");
  if (!more.empty()) config.update(parse_json("{" + more.substr(1) + "}"));
  return plan::parse_hf_config(config.dump(), "tiny");
}

// Adapters as the keys of adapter_config.json describe them.
inline plan::Tuning tiny_lora(const std::string& keys) {
  return {.lora = adapter::parse_adapter_config(
              R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, )" + keys + "}", "tiny")};
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
