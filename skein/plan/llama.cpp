// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/llama.h"

#include <fmt/format.h>

namespace skein::plan {
namespace {

// Values inside rope_parameters (transformers 5) or rope_scaling (4) win over a top-level
// rope_theta.
void read_rope(const ConfigReader& reader, LlamaConfig& config) {
  reader.read_positive("rope_theta", config.rope_theta);
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = reader.object(key);
    if (!rope) continue;
    std::string type = "default";
    rope->read("type", type);
    rope->read("rope_type", type);
    if (type != "default") {
      rope->fail(fmt::format("rope_type {} is not supported yet: only default is", type));
    }
    rope->read_positive("rope_theta", config.rope_theta);
    double rotated = 1;
    rope->read("partial_rotary_factor", rotated);
    if (rotated != 1) rope->fail("partial_rotary_factor other than 1 is not supported");
  }
}

void read_heads(const ConfigReader& reader, LlamaConfig& config) {
  reader.read("num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = config.num_attention_heads;
  reader.read("num_key_value_heads", config.num_key_value_heads);
  if (reader.has("head_dim")) {
    reader.read("head_dim", config.head_dim);
  } else {
    reader.require_divisible(config.hidden_size, config.num_attention_heads,
                             "hidden_size / num_attention_heads");
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  reader.require_divisible(config.num_attention_heads, config.num_key_value_heads,
                           "num_attention_heads / num_key_value_heads");
  reader.require_divisible(config.head_dim, 2, "head_dim (rotated in pairs)");
}

}  // namespace

std::unique_ptr<Architecture> read_llama(const ConfigReader& reader) {
  auto config = std::make_unique<LlamaConfig>();
  reader.read("vocab_size", config->vocab_size);
  reader.read("hidden_size", config->hidden_size);
  reader.read("intermediate_size", config->intermediate_size);
  reader.read("num_hidden_layers", config->num_hidden_layers, ConfigReader::kMaxLayers);
  read_heads(reader, *config);
  reader.read("max_position_embeddings", config->max_position_embeddings);
  reader.read_positive("rms_norm_eps", config->rms_norm_eps);
  read_rope(reader, *config);
  reader.read_probability("attention_dropout", config->attention_dropout);
  reader.read_positive("initializer_range", config->initializer_range);
  reader.read("attention_bias", config->attention_bias);
  reader.read("mlp_bias", config->mlp_bias);
  reader.read("tie_word_embeddings", config->tie_word_embeddings);

  std::string activation = "silu";
  reader.read("hidden_act", activation);
  if (activation != "silu" && activation != "swish") {
    reader.fail(fmt::format("hidden_act {} is not supported: Llama's is silu", activation));
  }
  return config;
}

Dimensions LlamaConfig::dimensions() const {
  return {.layers = num_hidden_layers,
          .channels = hidden_size,
          .query_width = num_attention_heads * head_dim,
          .key_width = num_key_value_heads * head_dim,
          .inner = intermediate_size,
          .vocabulary = vocab_size,
          .positions = max_position_embeddings,
          .positions_are_learned = false,
          .dropping_heads = attention_dropout > 0 ? num_attention_heads : 0,
          .gated = true,
          .tied_head = tie_word_embeddings};
}

Shapes LlamaConfig::shapes() const {
  const auto c = hidden_size, inner = intermediate_size;
  const auto width = num_attention_heads * head_dim, key_width = num_key_value_heads * head_dim;
  ShapeLister list(tie_word_embeddings);
  const auto add = [&](const std::string& name, int64_t in, int64_t out, bool bias) {
    list.add_layer(name, {out, in}, bias ? out : 0);
  };
  list.add_embedding("model.embed_tokens.weight", vocab_size, c);
  for (int64_t i = 0; i < num_hidden_layers; ++i) {
    const auto name = fmt::format("model.layers.{}.", i);
    list.begin_block();
    list.add(name + "input_layernorm.weight", {c});
    add(name + "self_attn.q_proj", c, width, attention_bias);
    add(name + "self_attn.k_proj", c, key_width, attention_bias);
    add(name + "self_attn.v_proj", c, key_width, attention_bias);
    add(name + "self_attn.o_proj", width, c, attention_bias);
    list.add(name + "post_attention_layernorm.weight", {c});
    add(name + "mlp.gate_proj", c, inner, mlp_bias);
    add(name + "mlp.up_proj", c, inner, mlp_bias);
    add(name + "mlp.down_proj", inner, c, mlp_bias);
  }
  list.end_blocks();
  list.add("model.norm.weight", {c});
  list.add_head("lm_head.weight", vocab_size, c);
  return list.take();
}

std::string LlamaConfig::training_advice() const {
  return attention_dropout_advice("attention_dropout", attention_dropout);
}

}  // namespace skein::plan
