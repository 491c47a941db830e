// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/shapes.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

namespace skein::plan {
namespace {

class Builder {
 public:
  int add_unit(std::string name, bool root) {
    shapes.units.push_back({std::move(name), root});
    return unit = static_cast<int>(shapes.units.size()) - 1;
  }
  void add(const std::string& name, std::vector<int64_t> shape) {
    const bool decay = shape.size() > 1;
    shapes.parameters.push_back({name, std::move(shape), unit, decay});
  }
  // The head, or the embedding that is the head too.
  void add_head(const std::string& name, int64_t vocabulary, int64_t channels) {
    add(name, {vocabulary, channels});
    shapes.parameters.back().padded_rows = padded_head_rows(vocabulary);
  }
  void add_layer(const std::string& name, std::vector<int64_t> weight, int64_t bias) {
    add(name + ".weight", std::move(weight));
    if (bias > 0) add(name + ".bias", {bias});
  }

  Shapes shapes;
  int unit = 0;  // that new parameters belong to
};

void add_block(Builder& builder, const GptConfig& config, int64_t index) {
  const auto name = fmt::format("transformer.h.{}.", index);
  const auto c = config.n_embd, inner = config.n_inner;
  builder.add_layer(name + "ln_1", {c}, c);
  builder.add_layer(name + "attn.c_attn", {c, 3 * c}, 3 * c);
  builder.add_layer(name + "attn.c_proj", {c, c}, c);
  builder.add_layer(name + "ln_2", {c}, c);
  builder.add_layer(name + "mlp.c_fc", {c, inner}, inner);
  builder.add_layer(name + "mlp.c_proj", {inner, c}, c);
}

void add_block(Builder& builder, const LlamaConfig& config, int64_t index) {
  const auto name = fmt::format("model.layers.{}.", index);
  const auto c = config.hidden_size, inner = config.intermediate_size;
  const auto width = config.num_attention_heads * config.head_dim;
  const auto key_width = config.num_key_value_heads * config.head_dim;
  const auto attention = [&](const char* part, int64_t in, int64_t out) {
    builder.add_layer(name + "self_attn." + part, {out, in}, config.attention_bias ? out : 0);
  };
  const auto mlp = [&](const char* part, int64_t in, int64_t out) {
    builder.add_layer(name + "mlp." + part, {out, in}, config.mlp_bias ? out : 0);
  };
  builder.add(name + "input_layernorm.weight", {c});
  attention("q_proj", c, width);
  attention("k_proj", c, key_width);
  attention("v_proj", c, key_width);
  attention("o_proj", width, c);
  builder.add(name + "post_attention_layernorm.weight", {c});
  mlp("gate_proj", c, inner);
  mlp("up_proj", c, inner);
  mlp("down_proj", inner, c);
}

template <typename Config>
void add_blocks(Builder& builder, const Config& config, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    builder.add_unit(fmt::format("block {}", i), false);
    add_block(builder, config, i);
  }
}

// Embedding, final norm and head are one unit when they share weights.
int add_first_unit(Builder& builder, bool tied) {
  return builder.add_unit(tied ? "root" : "embedding", true);
}
void add_embedding(Builder& builder, bool tied, const std::string& name, int64_t vocabulary,
                   int64_t channels) {
  if (tied) {
    builder.add_head(name, vocabulary, channels);
  } else {
    builder.add(name, {vocabulary, channels});
  }
}
void turn_to_last_unit(Builder& builder, bool tied, int first) {
  if (tied) {
    builder.unit = first;
  } else {
    builder.add_unit("head", true);
  }
}

Shapes list(const GptConfig& config) {
  Builder builder;
  const int first = add_first_unit(builder, config.tie_word_embeddings);
  add_embedding(builder, config.tie_word_embeddings, "transformer.wte.weight", config.vocab_size,
                config.n_embd);
  builder.add("transformer.wpe.weight", {config.n_positions, config.n_embd});
  add_blocks(builder, config, config.n_layer);
  turn_to_last_unit(builder, config.tie_word_embeddings, first);
  builder.add_layer("transformer.ln_f", {config.n_embd}, config.n_embd);
  if (!config.tie_word_embeddings) {
    builder.add_head("lm_head.weight", config.vocab_size, config.n_embd);
  }
  return std::move(builder.shapes);
}

Shapes list(const LlamaConfig& config) {
  Builder builder;
  const int first = add_first_unit(builder, config.tie_word_embeddings);
  add_embedding(builder, config.tie_word_embeddings, "model.embed_tokens.weight", config.vocab_size,
                config.hidden_size);
  add_blocks(builder, config, config.num_hidden_layers);
  turn_to_last_unit(builder, config.tie_word_embeddings, first);
  builder.add("model.norm.weight", {config.hidden_size});
  if (!config.tie_word_embeddings) {
    builder.add_head("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return std::move(builder.shapes);
}

Dimensions measure(const GptConfig& config) {
  return {.layers = config.n_layer,
          .channels = config.n_embd,
          .query_width = config.n_embd,
          .key_width = config.n_embd,
          .inner = config.n_inner,
          .vocabulary = config.vocab_size,
          .positions = config.n_positions,
          .gated = false};
}

Dimensions measure(const LlamaConfig& config) {
  return {.layers = config.num_hidden_layers,
          .channels = config.hidden_size,
          .query_width = config.num_attention_heads * config.head_dim,
          .key_width = config.num_key_value_heads * config.head_dim,
          .inner = config.intermediate_size,
          .vocabulary = config.vocab_size,
          .positions = 0,
          .gated = true};
}

}  // namespace

int64_t ParameterShape::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t ParameterShape::memory_numel() const {
  return padded_rows > 0 ? numel() / shape[0] * padded_rows : numel();
}

int64_t Shapes::numel() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.numel();
  return sum;
}

int64_t Shapes::unit_numel(int unit) const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.unit == unit ? parameter.numel() : 0;
  return sum;
}

Shapes shapes_of(const HfConfig& config) {
  return std::visit([](const auto& c) { return list(c); }, config.architecture);
}

Dimensions dimensions_of(const HfConfig& config) {
  return std::visit([](const auto& c) { return measure(c); }, config.architecture);
}

}  // namespace skein::plan
