// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Llama's configuration. Keys and defaults are transformers'.

#include <cstdint>
#include <memory>
#include <string>

#include "skein/plan/architecture.h"
#include "skein/plan/config_reader.h"

namespace skein::plan {

struct LlamaConfig final : Architecture {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  // absent: num_attention_heads
  int64_t head_dim = 0;             // absent: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;

  Dimensions dimensions() const override;
  Shapes shapes() const override;
  std::string training_advice() const override;
};

std::unique_ptr<Architecture> read_llama(const ConfigReader& reader);

}  // namespace skein::plan
