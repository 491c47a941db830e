// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model does a Hugging Face config.json describe?
//
// Keys and defaults are those of transformers 4 and 5 (a file may omit what equals the default).
// What we cannot compute exactly is refused by name; keys that do not change the computation are
// kept and written back. Free of torch: the bytes come from outside.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

namespace skein::plan {

struct GptConfig {  // model_type gpt2
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;         // 0 in no file: 4 · n_embd when absent
  bool gelu_is_exact = false;  // activation_function gelu; else gelu_new (tanh)
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;
};

struct LlamaConfig {  // model_type llama
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
};

struct HfConfig {
  std::variant<GptConfig, LlamaConfig> architecture;
  std::string
      dtype;  // of the stored weights as the file says it ("bfloat16"); empty if it does not
  std::string source;  // the file's text
};

// `origin` names the text in messages. Throws UserError naming file and key.
HfConfig parse_hf_config(std::string_view text, const std::string& origin);
// Reads FOLDER/config.json.
HfConfig read_hf_config(const std::filesystem::path& folder);

// Does the head share the embedding's weights?
bool has_tied_head(const HfConfig& config);

// config.json for saving: the source with its unknown keys and their order, with the dtype updated.
std::string hf_config_json(const HfConfig& config, const std::string& dtype);

}  // namespace skein::plan
