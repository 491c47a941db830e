// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/llama.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <vector>

#include "skein/ops/attention.h"
#include "skein/ops/embedding.h"
#include "skein/ops/rms_norm.h"
#include "skein/ops/rope.h"
#include "skein/ops/swiglu.h"
#include "skein/plan/llama.h"

namespace skein::model {
namespace {

using tensor::Batch;
using tensor::StepKey;
using tensor::Tensors;
using tensor::Units;

struct Block {
  int unit = 0;
  at::Tensor input_norm, post_attention_norm;  // (C)
  Linear q, k, v, o;
  Linear gate, up, down;
};

// B rows, T tokens, C channels, H heads (fewer for keys and values), D channels per head
class Llama final : public Model {
 public:
  Llama(const plan::LlamaConfig& config, const BuildOptions& options);

  int64_t max_positions() const override { return config_.max_position_embeddings; }
  int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  at::Tensor hidden_states(const Batch& batch, const StepKey& key, Units& units) const override;
  at::Tensor decode_at(const at::Tensor& positions, const at::Tensor& tokens, KvCache& cache,
                       Units& units) const override;
  int head_unit() const override { return head_unit_; }
  const at::Tensor& head_weight() const override {
    return config_.tie_word_embeddings ? embedding_ : head_;
  }

  void add_block(int index, const BuildOptions& options);

  // `attend` gives each block's attention.
  at::Tensor run(const at::Tensor& tokens, const ops::RopeTable& rope,
                 const std::function<Attend(size_t block)>& attend, Units& units) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                       const Attend& attend) const;
  at::Tensor attention(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                       const Attend& attend) const;

  plan::LlamaConfig config_;
  int embedding_unit_ = 0, head_unit_ = 0;
  at::Tensor embedding_;       // (V, C), rows padded where it is the head
  std::vector<Block> blocks_;  // never resized after registration
  at::Tensor norm_;            // (C)
  at::Tensor head_;            // (V, C) and padded rows, when untied
};

Llama::Llama(const plan::LlamaConfig& config, const BuildOptions& options)
    : config_(config), blocks_(static_cast<size_t>(config.num_hidden_layers)) {
  const auto channels = config_.hidden_size, vocabulary = config_.vocab_size;
  const double deviation = config_.initializer_range;
  const bool tied = config_.tie_word_embeddings;
  auto root = UnitBuilder::root(table_, tied ? "root" : "embedding", options);
  embedding_unit_ = root.unit();
  root.add_embedding("model.embed_tokens", {vocabulary, channels, deviation, tied}, embedding_);
  for (int i = 0; i < config_.num_hidden_layers; ++i) add_block(i, options);

  auto last = tied ? root : UnitBuilder::root(table_, "head", options);
  head_unit_ = last.unit();
  last.add_norm("model.norm", channels, norm_);
  if (!tied) {
    last.add_embedding("lm_head", {vocabulary, channels, deviation, /*head=*/true}, head_);
  }
}

void Llama::add_block(int index, const BuildOptions& options) {
  const auto name = fmt::format("model.layers.{}.", index);
  auto unit = UnitBuilder::block(table_, fmt::format("block {}", index), index, options);
  auto& block = blocks_[static_cast<size_t>(index)];
  block.unit = unit.unit();

  const auto channels = config_.hidden_size, inner = config_.intermediate_size;
  const auto width = config_.num_attention_heads * config_.head_dim;
  const auto key_width = config_.num_key_value_heads * config_.head_dim;
  const auto attention = [&](const char* part, int64_t in, int64_t out, Linear& layer) {
    unit.add_linear(name + "self_attn." + part,
                    {.in = in,
                     .out = out,
                     .bias = config_.attention_bias,
                     .deviation = config_.initializer_range},
                    layer);
  };
  const auto mlp = [&](const char* part, int64_t in, int64_t out, Linear& layer) {
    unit.add_linear(
        name + "mlp." + part,
        {.in = in, .out = out, .bias = config_.mlp_bias, .deviation = config_.initializer_range},
        layer);
  };
  unit.add_norm(name + "input_layernorm", channels, block.input_norm);
  attention("q_proj", channels, width, block.q);
  attention("k_proj", channels, key_width, block.k);
  attention("v_proj", channels, key_width, block.v);
  attention("o_proj", width, channels, block.o);
  unit.add_norm(name + "post_attention_layernorm", channels, block.post_attention_norm);
  mlp("gate_proj", channels, inner, block.gate);
  mlp("up_proj", channels, inner, block.up);
  mlp("down_proj", inner, channels, block.down);
}

at::Tensor Llama::hidden_states(const Batch& batch, const StepKey& key, Units& units) const {
  const Draws draws{key, batch.documents};
  const auto rope = ops::rope_table(batch.tokens.size(1), config_.head_dim, config_.rope_theta,
                                    embedding_.options());
  const auto attend = [&](size_t block) -> Attend {
    const auto dropout = draws.at(config_.attention_dropout, static_cast<int64_t>(block),
                                  ops::DropoutSite::kAttention);
    return [dropout](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return ops::causal_attention(q, k, v, {.dropout = dropout});
    };
  };
  return run(batch.tokens, rope, attend, units);
}

at::Tensor Llama::decode_at(const at::Tensor& positions, const at::Tensor& tokens, KvCache& cache,
                            Units& units) const {
  const auto rope =
      ops::rope_table(positions, config_.head_dim, config_.rope_theta, embedding_.options());
  const auto attend = [&](size_t block) -> Attend {
    return [&, block](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return cache.attend(block, q, k, v, {.positions = positions});
    };
  };
  return run(tokens, rope, attend, units);
}

at::Tensor Llama::run(const at::Tensor& tokens, const ops::RopeTable& rope,
                      const std::function<Attend(size_t block)>& attend, Units& units) const {
  auto x = run_unit(units, embedding_unit_, {}, [this, tokens](const Tensors&) {
    return ops::embedding(embedding_, tokens);  // (B, T, C)
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& block = blocks_[i];
    x = run_unit(units, block.unit, {x},
                 [this, &block, rope, attend = attend(i)](const Tensors& in) {
                   return run_block(block, in[0], rope, attend);
                 });
  }
  return run_unit(units, head_unit_, {x}, [this](const Tensors& in) {
    return ops::rms_norm(in[0], norm_, config_.rms_norm_eps);
  });
}

at::Tensor Llama::run_block(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                            const Attend& attend) const {
  const auto [stream, a] = ops::add_rms_norm(x, {}, block.input_norm, config_.rms_norm_eps);
  const auto [h, m] = ops::add_rms_norm(stream, attention(block, a, rope, attend),
                                        block.post_attention_norm, config_.rms_norm_eps);
  const auto inner = linears({&block.gate, &block.up}, m);
  return h + linear(block.down, ops::swiglu(inner[0], inner[1]));
}

at::Tensor Llama::attention(const Block& block, const at::Tensor& x, const ops::RopeTable& rope,
                            const Attend& attend) const {  // (B, T, C)
  const auto split_heads = [&](const at::Tensor& y) {
    return y.view({y.size(0), y.size(1), -1, config_.head_dim});
  };
  const auto qkv = linears({&block.q, &block.k, &block.v}, x);
  const auto q = ops::rotate(split_heads(qkv[0]), rope);  // (B, T, H, D)
  const auto k = ops::rotate(split_heads(qkv[1]), rope);
  const auto v = split_heads(qkv[2]);
  const auto y = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));  // (B, H, T, D)
  return linear(block.o, y.transpose(1, 2).flatten(2));
}

}  // namespace

std::unique_ptr<Model> make_llama(const plan::Architecture& architecture,
                                  const BuildOptions& options) {
  return std::make_unique<Llama>(dynamic_cast<const plan::LlamaConfig&>(architecture), options);
}

}  // namespace skein::model
