// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <vector>

#include "skein/core/error.h"
#include "skein/model/embedding_noise.h"
#include "skein/model/rotary.h"
#include "skein/ops/attention.h"
#include "skein/ops/embedding_noise.h"
#include "skein/ops/rms_norm.h"
#include "skein/ops/swiglu.h"
#include "skein/plan/families/decoder.h"

namespace skein::model {
namespace {

using ops::DropoutSite;
using plan::Part;
using tensor::Batch;
using tensor::StepKey;
using tensor::Tensors;
using tensor::Units;

// Those parts that a family does not have stay empty.
struct Block {
  int unit = 0;
  int64_t index = 0;
  at::Tensor input_norm, attention_out_norm, mlp_norm, down_norm;  // (C)
  at::Tensor query_norm, key_norm;                                 // (D)
  Linear q, k, v, qkv, o;
  Linear gate, up, gate_up, down;
};

// Of layers that see everything, and of those with a window.
struct RotaryTables {
  ops::RopeTable full, windowed;
};

at::Tensor& norm_of(Block& block, Part part) {
  switch (part) {
    case Part::kInputNorm:
      return block.input_norm;
    case Part::kQueryNorm:
      return block.query_norm;
    case Part::kKeyNorm:
      return block.key_norm;
    case Part::kAttentionOutNorm:
      return block.attention_out_norm;
    case Part::kMlpNorm:
      return block.mlp_norm;
    case Part::kDownNorm:
      return block.down_norm;
    default:
      throw InternalError("this part is no norm");
  }
}

Linear& linear_of(Block& block, Part part) {
  switch (part) {
    case Part::kQuery:
      return block.q;
    case Part::kKey:
      return block.k;
    case Part::kValue:
      return block.v;
    case Part::kQueryKeyValue:
      return block.qkv;
    case Part::kAttentionOut:
      return block.o;
    case Part::kGate:
      return block.gate;
    case Part::kUp:
      return block.up;
    case Part::kGateUp:
      return block.gate_up;
    case Part::kDown:
      return block.down;
    default:
      throw InternalError("this part is no linear layer");
  }
}

// B rows, T tokens, C channels, H heads (fewer for keys and values), D channels per head
class Decoder final : public Model {
 public:
  Decoder(const plan::Decoder& config, const Recipe& recipe);

  int64_t max_positions() const override { return config_.dimensions().usable_positions(); }
  int64_t vocab_size() const override { return config_.vocabulary; }
  double logit_cap() const override { return config_.logit_cap.value_or(0); }
  bool turns_by_length() const override {
    return config_.rope.depends_on_length() || config_.window_rope.depends_on_length();
  }
  bool outgrows(int64_t before, int64_t after) const override;

 private:
  at::Tensor hidden_states(const Batch& batch, const StepKey& key, Units& units) const override;
  at::Tensor decode_at(const NextTokens& next, const KvCache& cache, Units& units) const override;
  KvShape kv_shape() const override {
    return {config_.layers, config_.key_heads, config_.head_dim};
  }
  int head_unit() const override { return head_unit_; }
  const at::Tensor& head_weight() const override {
    return config_.tied_head ? embedding_.weight : head_.weight;
  }
  const std::optional<Lora>& head_lora() const override { return head_.lora; }
  const at::Tensor* score_weight() const override { return config_.scores ? &score_ : nullptr; }

  void add_block(int index, const Recipe& recipe);
  void add_norm(UnitBuilder& unit, const std::string& name, int64_t size, at::Tensor& weight) const;

  // What all blocks of a pass share.
  struct Pass {
    RotaryTables rotary;
    Draws draws;
    std::function<Attend(const Block&)> attend;  // each block's attention
    ops::EmbeddingNoise noise{};
  };
  RotaryTables rotary_tables(const std::function<ops::RopeTable(const plan::Rope&)>& make) const;
  ops::AttentionOptions attention_options(const Block& block) const;

  at::Tensor run(const at::Tensor& tokens, const Pass& pass, Units& units) const;
  at::Tensor embed_tokens(const at::Tensor& tokens, const ops::EmbeddingNoise& noise,
                          bool adapters) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                       const Draws& draws, const Attend& attend) const;
  at::Tensor attention(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                       const Draws& draws, const Attend& attend) const;
  std::vector<at::Tensor> queries_keys_values(const Block& block, const at::Tensor& x,
                                              const Draws& draws) const;
  at::Tensor mlp(const Block& block, const at::Tensor& x, const Draws& draws) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  ops::AddedNorm add_and_norm(const at::Tensor& x, const at::Tensor& delta,
                              const at::Tensor& weight) const;

  plan::Decoder config_;
  double embedding_noise_ = 0;
  int embedding_unit_ = 0, head_unit_ = 0;
  Embedding embedding_;        // (V, C), rows padded where it is the head
  std::vector<Block> blocks_;  // never resized after registration
  at::Tensor norm_;            // (C)
  Linear head_;                // (V, C) and padded rows, when untied
  at::Tensor score_;           // (1, C), in the head's place
};

Decoder::Decoder(const plan::Decoder& config, const Recipe& recipe)
    : config_(config),
      embedding_noise_(recipe.embedding_noise()),
      blocks_(static_cast<size_t>(config.layers)) {
  const bool tied = config_.tied_head;
  const EmbeddingShape shape{config_.vocabulary, config_.channels, config_.initializer_range, tied};
  auto root = UnitBuilder::root(table_, tied ? "root" : "embedding", recipe);
  embedding_unit_ = root.unit();
  root.add_embedding("model.embed_tokens", shape, embedding_);
  for (int i = 0; i < config_.layers; ++i) add_block(i, recipe);

  auto last = tied ? root : UnitBuilder::root(table_, "head", recipe);
  head_unit_ = last.unit();
  add_norm(last, "model.norm", config_.channels, norm_);
  if (config_.scores) {
    last.add_score(plan::kScoreName, config_.channels, config_.initializer_range, score_);
  } else {
    last.add_head("lm_head", shape, head_, tied ? &embedding_ : nullptr);
  }
}

void Decoder::add_block(int index, const Recipe& recipe) {
  auto unit = UnitBuilder::block(table_, fmt::format("block {}", index), index, recipe);
  auto& block = blocks_[static_cast<size_t>(index)];
  block.unit = unit.unit();
  block.index = index;
  for (const auto& [part, name, in, out, bias] : config_.parts(index)) {
    if (in == 0) {
      add_norm(unit, name, out, norm_of(block, part));
    } else {
      unit.add_linear(name,
                      {.in = in, .out = out, .bias = bias, .deviation = config_.initializer_range},
                      linear_of(block, part));
    }
  }
}

void Decoder::add_norm(UnitBuilder& unit, const std::string& name, int64_t size,
                       at::Tensor& weight) const {
  if (config_.norms_add_one) {
    unit.add_offset_norm(name, size, weight);
  } else {
    unit.add_norm(name, size, weight);
  }
}

at::Tensor Decoder::hidden_states(const Batch& batch, const StepKey& key, Units& units) const {
  const Draws draws{key, batch.documents, batch.run};
  const auto attend = [&](const Block& block) -> Attend {
    auto options = attention_options(block);
    options.dropout = draws.at(config_.attention_dropout, block.index, DropoutSite::kAttention);
    return attend_within(batch, options);
  };
  const auto rotary = rotary_tables([&](const plan::Rope& rope) {
    return rotary_table(rope, batch, embedding_.weight.options());
  });
  return run(batch.tokens, {rotary, draws, attend, noise_of(embedding_noise_, batch, key)}, units);
}

// As transformers' Phi-3. Of other families, and where `dynamic` slowly grows, new tokens turn
// otherwise and the cache stays.
bool Decoder::outgrows(int64_t before, int64_t after) const {
  if (!config_.long_rope_alone) return false;
  return std::ranges::any_of(
      std::array{&config_.rope, &config_.window_rope}, [&](const auto* rope) {
        return rope->type == plan::RopeType::kLongRope && before <= rope->original_positions &&
               after > rope->original_positions;
      });
}

at::Tensor Decoder::decode_at(const NextTokens& next, const KvCache& cache, Units& units) const {
  const auto attend = [&](const Block& block) -> Attend {
    return [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return cache.attend(static_cast<size_t>(block.index), q, k, v, attention_options(block));
    };
  };
  const Draws none{.key = {.training = false}, .documents = {}};
  const auto rotary = rotary_tables([&](const plan::Rope& rope) {
    return rotary_table(rope, next.positions, next.lengths, embedding_.weight.options());
  });
  return run(next.tokens, {rotary, none, attend}, units);
}

RotaryTables Decoder::rotary_tables(
    const std::function<ops::RopeTable(const plan::Rope&)>& make) const {
  auto full = make(config_.rope);
  const bool one = config_.window_rope == config_.rope || config_.dimensions().windowed_layers == 0;
  return {full, one ? full : make(config_.window_rope)};
}

ops::AttentionOptions Decoder::attention_options(const Block& block) const {
  return {.scale = config_.score_scale,
          .window = config_.window(block.index),
          .cap = config_.score_cap};
}

at::Tensor Decoder::run(const at::Tensor& tokens, const Pass& pass, Units& units) const {
  const auto embed = [this, tokens, noise = pass.noise,
                      adapters = pass.draws.key.adapters](const Tensors&) {
    return embed_tokens(tokens, noise, adapters);  // (B, T, C)
  };
  auto x = run_unit(units, embedding_unit_, {}, embed);
  for (const auto& block : blocks_) {
    const auto rope = config_.window(block.index) > 0 ? pass.rotary.windowed : pass.rotary.full;
    const auto run = [this, &block, rope, draws = pass.draws,
                      attend = pass.attend(block)](const Tensors& in) {
      return run_block(block, in[0], rope, draws, attend);
    };
    x = run_unit(units, block.unit, {x}, run);
  }
  return run_unit(units, head_unit_, {x}, [this](const Tensors& in) { return norm(in[0], norm_); });
}

at::Tensor Decoder::embed_tokens(const at::Tensor& tokens,  // (B, T)
                                 const ops::EmbeddingNoise& noise, bool adapters) const {
  auto x = embed(embedding_, tokens, adapters);
  if (config_.embedding_scale != 1) {
    // A tensor: the factor is rounded to the embedding's dtype, as Gemma was trained.
    x = x * at::full({}, config_.embedding_scale, x.options().requires_grad(false));
  }
  return ops::embedding_noise(x, noise);
}

at::Tensor Decoder::run_block(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                              const Draws& draws, const Attend& attend) const {
  // What is added to the stream.
  const auto added = [&](const at::Tensor& y, const at::Tensor& weight, DropoutSite site) {
    const auto normalised = config_.norms_outputs ? norm(y, weight) : y;
    return ops::dropout(normalised, draws.at(config_.residual_dropout, block.index, site));
  };
  const auto [stream, a] = add_and_norm(x, {}, block.input_norm);
  const auto attended = added(attention(block, a, rope, draws, attend), block.attention_out_norm,
                              DropoutSite::kAttentionOutput);
  const auto [h, m] = add_and_norm(stream, attended, block.mlp_norm);
  return h + added(mlp(block, m, draws), block.down_norm, DropoutSite::kMlpOutput);
}

at::Tensor Decoder::attention(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                              const Draws& draws, const Attend& attend) const {  // (B, T, C)
  const auto split_heads = [&](const at::Tensor& y) {
    return y.unflatten(-1, {-1, config_.head_dim});
  };
  const auto qkv = queries_keys_values(block, x, draws);
  auto q = split_heads(qkv[0]), k = split_heads(qkv[1]);  // (B, T, H, D)
  const auto v = split_heads(qkv[2]);
  if (config_.query_key_norms) {
    q = norm(q, block.query_norm);
    k = norm(k, block.key_norm);
  }
  std::tie(q, k) = ops::rotate(q, k, rope);
  const auto y = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));  // (B, H, T, D)
  return linear(block.o, y.transpose(1, 2).flatten(2), draws);
}

std::vector<at::Tensor> Decoder::queries_keys_values(const Block& block, const at::Tensor& x,
                                                     const Draws& draws) const {
  if (!config_.fused_projections) return linears({&block.q, &block.k, &block.v}, x, draws);
  const auto width = config_.heads * config_.head_dim;
  const auto key_width = config_.key_heads * config_.head_dim;
  return linear(block.qkv, x, draws).split_with_sizes({width, key_width, key_width}, -1);
}

at::Tensor Decoder::mlp(const Block& block, const at::Tensor& x, const Draws& draws) const {
  const auto inner = config_.fused_projections ? linear(block.gate_up, x, draws).chunk(2, -1)
                                               : linears({&block.gate, &block.up}, x, draws);
  const auto& gate = inner[0];
  const auto& up = inner[1];
  switch (config_.activation) {
    case plan::Activation::kGelu:
      return linear(block.down, at::gelu(gate) * up, draws);
    case plan::Activation::kGeluTanh:
      return linear(block.down, at::gelu(gate, "tanh") * up, draws);
    case plan::Activation::kSilu:
      break;
  }
  return linear(block.down, ops::swiglu(gate, up), draws);
}

at::Tensor Decoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return config_.norms_add_one ? ops::rms_norm_plus_one(x, weight, config_.norm_epsilon)
                               : ops::rms_norm(x, weight, config_.norm_epsilon);
}

ops::AddedNorm Decoder::add_and_norm(const at::Tensor& x, const at::Tensor& delta,
                                     const at::Tensor& weight) const {
  if (!config_.norms_add_one) return ops::add_rms_norm(x, delta, weight, config_.norm_epsilon);
  const auto sum = delta.defined() ? x + delta : x;
  return {sum, norm(sum, weight)};
}

}  // namespace

std::unique_ptr<Model> make_decoder(const Recipe& recipe) {
  return std::make_unique<Decoder>(dynamic_cast<const plan::Decoder&>(recipe.architecture()),
                                   recipe);
}

}  // namespace skein::model
