// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/gpt2.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

namespace skein::plan {

std::unique_ptr<Architecture> read_gpt2(const ConfigReader& reader) {
  auto config = std::make_unique<Gpt2Config>();
  reader.read("vocab_size", config->vocab_size);
  reader.read("n_positions", config->n_positions);
  reader.read("n_embd", config->n_embd);
  reader.read("n_layer", config->n_layer, ConfigReader::kMaxLayers);
  reader.read("n_head", config->n_head);
  config->n_inner = 4 * config->n_embd;
  reader.read("n_inner", config->n_inner);
  reader.read_probability("embd_pdrop", config->embd_pdrop);
  reader.read_probability("attn_pdrop", config->attn_pdrop);
  reader.read_probability("resid_pdrop", config->resid_pdrop);
  reader.read_positive("layer_norm_epsilon", config->layer_norm_epsilon);
  reader.read_positive("initializer_range", config->initializer_range);
  reader.read("scale_attn_weights", config->scale_attn_weights);
  reader.read("scale_attn_by_inverse_layer_idx", config->scale_attn_by_inverse_layer_idx);
  reader.read("tie_word_embeddings", config->tie_word_embeddings);
  reader.require_divisible(config->n_embd, config->n_head, "n_embd / n_head");

  std::string activation = "gelu_new";
  reader.read("activation_function", activation);
  config->gelu_is_exact = activation == "gelu";
  if (!config->gelu_is_exact && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    reader.fail(
        fmt::format("activation_function {} is not supported (gelu_new, gelu)", activation));
  }
  bool cross_attention = false;
  reader.read("add_cross_attention", cross_attention);
  if (cross_attention) reader.fail("add_cross_attention is not supported: decoder-only models are");
  return config;
}

Dimensions Gpt2Config::dimensions() const {
  return {.layers = n_layer,
          .channels = n_embd,
          .query_width = n_embd,
          .key_width = n_embd,
          .inner = n_inner,
          .vocabulary = vocab_size,
          .positions = n_positions,
          .positions_are_learned = true,
          .heads = n_head,
          .unfused_attention = attn_pdrop > 0,
          .gated = false,
          .tied_head = tie_word_embeddings,
          .scores = scores};
}

Shapes Gpt2Config::shapes() const {
  ShapeLister list(tie_word_embeddings, ModuleKind::kTransposedLinear);
  list.add_embedding("transformer.wte.weight", vocab_size, n_embd);
  list.add("transformer.wpe.weight", {n_positions, n_embd});
  for (int64_t i = 0; i < n_layer; ++i) {
    const auto name = fmt::format("transformer.h.{}.", i);
    list.begin_block();
    list.add_layer(name + "ln_1", {n_embd}, n_embd);
    list.add_layer(name + "attn.c_attn", {n_embd, 3 * n_embd}, 3 * n_embd);
    list.add_layer(name + "attn.c_proj", {n_embd, n_embd}, n_embd);
    list.add_layer(name + "ln_2", {n_embd}, n_embd);
    list.add_layer(name + "mlp.c_fc", {n_embd, n_inner}, n_inner);
    list.add_layer(name + "mlp.c_proj", {n_inner, n_embd}, n_embd);
  }
  list.end_blocks();
  list.add_layer("transformer.ln_f", {n_embd}, n_embd);
  if (scores) {
    list.add_score(kScoreName, n_embd);
  } else {
    list.add_head("lm_head.weight", vocab_size, n_embd);
  }
  return list.take();
}

std::shared_ptr<const Architecture> Gpt2Config::untied() const {
  auto copy = std::make_shared<Gpt2Config>(*this);
  copy->tie_word_embeddings = false;
  return copy;
}

std::shared_ptr<const Architecture> Gpt2Config::scored() const {
  auto copy = std::make_shared<Gpt2Config>(*this);
  copy->tie_word_embeddings = false;
  copy->scores = true;
  return copy;
}

std::string Gpt2Config::sharing_refusal(int64_t) const {
  for (const auto& [key, probability] : std::initializer_list<std::pair<const char*, double>>{
           {"embd_pdrop", embd_pdrop}, {"attn_pdrop", attn_pdrop}, {"resid_pdrop", resid_pdrop}}) {
    if (probability > 0) return dropout_refusal(key, probability);
  }
  return "";
}

std::string Gpt2Config::training_advice() const {
  return attention_dropout_advice("attn_pdrop", attn_pdrop);
}

}  // namespace skein::plan
