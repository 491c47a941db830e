// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// GPT-2's configuration. Keys and defaults are transformers'.

#include <cstdint>
#include <memory>
#include <string>

#include "skein/plan/families/architecture.h"
#include "skein/plan/families/config_reader.h"

namespace skein::plan {

struct Gpt2Config final : Architecture {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;         // set by read_gpt2: that of the file, else 4 x n_embd
  bool gelu_is_exact = false;  // activation_function gelu; else gelu_new (tanh)
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;
  bool scores = false;  // one number in place of the logits

  Dimensions dimensions() const override;
  Shapes shapes() const override;
  std::shared_ptr<const Architecture> untied() const override;
  std::shared_ptr<const Architecture> scored() const override;
  std::string sharing_refusal(int64_t longest) const override;
  std::string training_advice() const override;
};

std::unique_ptr<Architecture> read_gpt2(const ConfigReader& reader);

}  // namespace skein::plan
