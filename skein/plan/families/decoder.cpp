// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/decoder.h"

#include <fmt/format.h>

#include <algorithm>

namespace skein::plan {
namespace {

void read_heads(const ConfigReader& reader, Decoder& decoder) {
  reader.read("num_attention_heads", decoder.heads);
  if (decoder.key_heads == 0 || reader.is_null("num_key_value_heads")) {
    decoder.key_heads = decoder.heads;
  }
  reader.read("num_key_value_heads", decoder.key_heads);
  reader.read("head_dim", decoder.head_dim);
  if (decoder.head_dim == 0) {
    reader.require_divisible(decoder.channels, decoder.heads, "hidden_size / num_attention_heads");
    decoder.head_dim = decoder.channels / decoder.heads;
  }
  reader.require_divisible(decoder.heads, decoder.key_heads,
                           "num_attention_heads / num_key_value_heads");
  reader.require_divisible(decoder.head_dim, 2, "head_dim (rotated in pairs)");
}

// Gemma's key is hidden_activation.
void read_activation(const ConfigReader& reader, Decoder& decoder) {
  for (const auto* key : {"hidden_act", "hidden_activation"}) {
    std::string name;
    reader.read(key, name);
    if (name.empty()) continue;
    if (name == "silu" || name == "swish") {
      decoder.activation = Activation::kSilu;
    } else if (name == "gelu") {
      decoder.activation = Activation::kGelu;
    } else if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
      decoder.activation = Activation::kGeluTanh;
    } else {
      reader.fail(fmt::format("{} {} is not supported (silu, gelu, gelu_pytorch_tanh)", key, name));
    }
  }
}

}  // namespace

void read_decoder(const ConfigReader& reader, Decoder& decoder) {
  reader.read("vocab_size", decoder.vocabulary);
  reader.read("hidden_size", decoder.channels);
  reader.read("intermediate_size", decoder.inner);
  reader.read("num_hidden_layers", decoder.layers, ConfigReader::kMaxLayers);
  read_heads(reader, decoder);
  reader.read("max_position_embeddings", decoder.positions);
  reader.read_positive("rms_norm_eps", decoder.norm_epsilon);
  reader.read_probability("attention_dropout", decoder.attention_dropout);
  reader.read_positive("initializer_range", decoder.initializer_range);
  reader.read("tie_word_embeddings", decoder.tied_head);
  read_activation(reader, decoder);
  decoder.windows.assign(static_cast<size_t>(decoder.layers), 0);
}

void read_windows(const ConfigReader& reader, std::optional<int64_t> window,
                  const std::function<bool(int64_t layer)>& slides, Decoder& decoder) {
  std::vector<std::string> types;
  reader.read("layer_types", types);
  if (!types.empty() && std::ssize(types) != decoder.layers) {
    reader.fail(fmt::format("layer_types names {} layers, num_hidden_layers is {}", types.size(),
                            decoder.layers));
  }
  for (const auto& type : types) {
    if (type == "full_attention" || type == "sliding_attention") continue;
    reader.fail(
        fmt::format("layer_types: {} is not supported (full_attention, sliding_attention)", type));
  }
  for (int64_t layer = 0; window && layer < decoder.layers; ++layer) {
    const auto place = static_cast<size_t>(layer);
    const bool sliding = types.empty() ? slides(layer) : types[place] == "sliding_attention";
    if (sliding) decoder.windows[place] = *window;
  }
}

std::vector<NamedPart> Decoder::parts(int64_t index) const {
  const auto block = fmt::format("model.layers.{}.", index);
  const auto width = heads * head_dim, key_width = key_heads * head_dim;
  std::vector<NamedPart> list;
  const auto norm = [&](Part part, const char* name, int64_t size) {
    list.push_back({.part = part, .name = block + name, .out = size});
  };
  const auto linear = [&](Part part, const char* name, int64_t in, int64_t out, bool bias) {
    list.push_back({.part = part, .name = block + name, .in = in, .out = out, .bias = bias});
  };
  norm(Part::kInputNorm, "input_layernorm", channels);
  if (fused_projections) {
    linear(Part::kQueryKeyValue, "self_attn.qkv_proj", channels, width + 2 * key_width,
           query_key_value_bias);
  } else {
    linear(Part::kQuery, "self_attn.q_proj", channels, width, query_key_value_bias);
    linear(Part::kKey, "self_attn.k_proj", channels, key_width, query_key_value_bias);
    linear(Part::kValue, "self_attn.v_proj", channels, key_width, query_key_value_bias);
  }
  if (query_key_norms) {
    norm(Part::kQueryNorm, "self_attn.q_norm", head_dim);
    norm(Part::kKeyNorm, "self_attn.k_norm", head_dim);
  }
  linear(Part::kAttentionOut, "self_attn.o_proj", width, channels, attention_out_bias);
  // Hugging Face's post_attention_layernorm is the MLP's norm, but where outputs are normalised.
  if (norms_outputs) norm(Part::kAttentionOutNorm, "post_attention_layernorm", channels);
  norm(Part::kMlpNorm, norms_outputs ? "pre_feedforward_layernorm" : "post_attention_layernorm",
       channels);
  if (fused_projections) {
    linear(Part::kGateUp, "mlp.gate_up_proj", channels, 2 * inner, mlp_bias);
  } else {
    linear(Part::kGate, "mlp.gate_proj", channels, inner, mlp_bias);
    linear(Part::kUp, "mlp.up_proj", channels, inner, mlp_bias);
  }
  linear(Part::kDown, "mlp.down_proj", inner, channels, mlp_bias);
  if (norms_outputs) norm(Part::kDownNorm, "post_feedforward_layernorm", channels);
  return list;
}

int64_t Decoder::plain_positions() const {
  int64_t least = 0;
  for (const auto* used : {&rope, &window_rope}) {
    if (!used->depends_on_length()) continue;
    least = least == 0 ? used->original_positions : std::min(least, used->original_positions);
  }
  return least;
}

Dimensions Decoder::dimensions() const {
  const auto windowed = std::ranges::find_if(windows, [](int64_t window) { return window > 0; });
  return {.layers = layers,
          .channels = channels,
          .query_width = heads * head_dim,
          .key_width = key_heads * head_dim,
          .inner = inner,
          .vocabulary = vocabulary,
          .positions = positions,
          .stretched_positions = rope.stretched_positions(),
          .positions_are_learned = false,
          .plain_positions = plain_positions(),
          .heads = heads,
          .unfused_attention = attention_dropout > 0 || score_cap,
          .window = windowed == windows.end() ? 0 : *windowed,
          .windowed_layers = layers - std::ranges::count(windows, int64_t{0}),
          .capped_logits = logit_cap.has_value() && !scores,
          .gated = true,
          .tied_head = tied_head,
          .scores = scores};
}

Shapes Decoder::shapes() const {
  ShapeLister list(tied_head);
  list.add_embedding("model.embed_tokens.weight", vocabulary, channels);
  for (int64_t i = 0; i < layers; ++i) {
    list.begin_block();
    for (const auto& part : parts(i)) {
      auto weight = part.is_norm() ? std::vector{part.out} : std::vector{part.out, part.in};
      list.add_layer(part.name, std::move(weight), part.bias ? part.out : 0);
    }
  }
  list.end_blocks();
  list.add("model.norm.weight", {channels});
  if (scores) {
    list.add_score(kScoreName, channels);
  } else {
    list.add_head("lm_head.weight", vocabulary, channels);
  }
  return list.take();
}

std::shared_ptr<const Architecture> Decoder::untied() const {
  auto copy = std::make_shared<Decoder>(*this);
  copy->tied_head = false;
  return copy;
}

std::shared_ptr<const Architecture> Decoder::scored() const {
  auto copy = std::make_shared<Decoder>(*this);
  copy->tied_head = false;
  copy->scores = true;
  return copy;
}

std::string Decoder::stretch_refusal() const {
  return long_rope_alone ? "knows longrope alone, from its config.json" : "";
}

std::string Decoder::sharing_refusal(int64_t longest) const {
  if (attention_dropout > 0) return dropout_refusal("attention_dropout", attention_dropout);
  if (residual_dropout > 0) return dropout_refusal("resid_pdrop", residual_dropout);
  for (const int64_t window : windows) {
    if (window > 0 && window < longest) {
      return fmt::format("config.json: sliding_window is {}", window);
    }
  }
  if (score_cap) return fmt::format("config.json: attn_logit_softcapping is {}", *score_cap);
  if (const auto plain = plain_positions(); plain > 0 && longest > plain) {
    return fmt::format("config.json: beyond {} tokens RoPE turns by the length of the whole text",
                       plain);
  }
  return "";
}

std::string Decoder::training_advice() const {
  if (score_cap) {
    return fmt::format(
        "config.json: attn_logit_softcapping is {}: attention takes the unfused path, which holds "
        "three (batch, heads, tokens, tokens) tensors per block and is slower, the more the longer "
        "the rows",
        *score_cap);
  }
  return attention_dropout_advice("attention_dropout", attention_dropout);
}

}  // namespace skein::plan
