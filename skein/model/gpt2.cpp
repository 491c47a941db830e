// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "skein/core/error.h"
#include "skein/model/embedding_noise.h"
#include "skein/ops/attention.h"
#include "skein/ops/embedding_noise.h"
#include "skein/ops/layer_norm.h"
#include "skein/plan/families/gpt2.h"

namespace skein::model {
namespace {

using ops::DropoutSite;
using tensor::Batch;
using tensor::StepKey;
using tensor::Tensors;
using tensor::Units;

struct Block {
  int unit = 0;
  int64_t index = 0;
  ops::LayerNorm norm_1, norm_2;
  Linear qkv, attention_out;
  Linear mlp_in, mlp_out;
};

// B rows, T tokens, C channels, H heads, D channels per head
class Gpt2 final : public Model {
 public:
  Gpt2(const plan::Gpt2Config& config, const Recipe& recipe);

  int64_t max_positions() const override { return config_.n_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  at::Tensor hidden_states(const Batch& batch, const StepKey& key, Units& units) const override;
  at::Tensor decode_at(const NextTokens& next, const KvCache& cache, Units& units) const override;
  KvShape kv_shape() const override {
    return {config_.n_layer, config_.n_head, config_.n_embd / config_.n_head};
  }
  int head_unit() const override { return head_unit_; }
  const at::Tensor& head_weight() const override {
    return config_.tie_word_embeddings ? tokens_.weight : head_.weight;
  }
  const std::optional<Lora>& head_lora() const override { return head_.lora; }
  const at::Tensor* score_weight() const override { return config_.scores ? &score_ : nullptr; }

  void add_block(int index, const Recipe& recipe);

  at::Tensor embed_batch(const Batch& batch, const Draws& draws) const;
  at::Tensor run_blocks(at::Tensor x, const Draws& draws,
                        const std::function<Attend(const Block&)>& attend, Units& units) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x, const Draws& draws,
                       const Attend& attend) const;
  at::Tensor attention(const Block& block, const at::Tensor& x, const Draws& draws,
                       const Attend& attend) const;
  double attention_scale(const Block& block) const;
  at::Tensor mlp(const Block& block, const at::Tensor& x, const Draws& draws) const;

  plan::Gpt2Config config_;
  double embedding_noise_ = 0;
  int embedding_unit_ = 0, head_unit_ = 0;
  Embedding tokens_;           // (V, C), rows padded where it is the head
  Embedding positions_;        // (n_positions, C)
  std::vector<Block> blocks_;  // never resized after registration
  ops::LayerNorm norm_;
  Linear head_;       // (V, C) and padded rows, when untied
  at::Tensor score_;  // (1, C), in the head's place
};

Gpt2::Gpt2(const plan::Gpt2Config& config, const Recipe& recipe)
    : config_(config),
      embedding_noise_(recipe.embedding_noise()),
      blocks_(static_cast<size_t>(config.n_layer)) {
  const auto channels = config_.n_embd;
  const auto deviation = config_.initializer_range;
  const bool tied = config_.tie_word_embeddings;
  const EmbeddingShape shape{config_.vocab_size, channels, deviation, tied};
  auto root = UnitBuilder::root(table_, tied ? "root" : "embedding", recipe);
  embedding_unit_ = root.unit();
  root.add_embedding("transformer.wte", shape, tokens_);
  root.add_embedding("transformer.wpe", {config_.n_positions, channels, deviation}, positions_);
  for (int i = 0; i < config_.n_layer; ++i) add_block(i, recipe);

  auto last = tied ? root : UnitBuilder::root(table_, "head", recipe);
  head_unit_ = last.unit();
  last.add_norm("transformer.ln_f", channels, norm_.weight, &norm_.bias);
  norm_.epsilon = config_.layer_norm_epsilon;
  if (config_.scores) {
    last.add_score(plan::kScoreName, channels, deviation, score_);
  } else {
    last.add_head("lm_head", shape, head_, tied ? &tokens_ : nullptr);
  }
}

void Gpt2::add_block(int index, const Recipe& recipe) {
  const auto name = fmt::format("transformer.h.{}.", index);
  auto unit = UnitBuilder::block(table_, fmt::format("block {}", index), index, recipe);
  auto& block = blocks_[static_cast<size_t>(index)];
  block.unit = unit.unit();
  block.index = index;
  block.norm_1.epsilon = block.norm_2.epsilon = config_.layer_norm_epsilon;

  const auto channels = config_.n_embd, inner = config_.n_inner;
  const double deviation = config_.initializer_range;
  // What is added to the residual stream starts smaller, the more layers add to it.
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  const auto conv = [&](const char* part, int64_t in, int64_t out, double spread, Linear& layer) {
    unit.add_linear(name + part,
                    {.in = in, .out = out, .bias = true, .transposed = true, .deviation = spread},
                    layer);
  };
  unit.add_norm(name + "ln_1", channels, block.norm_1.weight, &block.norm_1.bias);
  conv("attn.c_attn", channels, 3 * channels, deviation, block.qkv);
  conv("attn.c_proj", channels, channels, residual, block.attention_out);
  unit.add_norm(name + "ln_2", channels, block.norm_2.weight, &block.norm_2.bias);
  conv("mlp.c_fc", channels, inner, deviation, block.mlp_in);
  conv("mlp.c_proj", inner, channels, residual, block.mlp_out);
}

at::Tensor Gpt2::hidden_states(const Batch& batch, const StepKey& key, Units& units) const {
  if (longest_document(batch) > config_.n_positions) {
    throw UserError(fmt::format(
        "a row has {} tokens, but the model knows {} positions (n_positions): lower cutoff_len "
        "or block_size",
        longest_document(batch), config_.n_positions));
  }
  const Draws draws{key, batch.documents, batch.run};
  const auto x = run_unit(units, embedding_unit_, {}, [this, batch, draws](const Tensors&) {
    return embed_batch(batch, draws);  // (B, T, C)
  });
  const auto attend = [&](const Block& block) -> Attend {
    return attend_within(
        batch, {.scale = attention_scale(block),
                .dropout = draws.at(config_.attn_pdrop, block.index, DropoutSite::kAttention)});
  };
  return run_blocks(x, draws, attend, units);
}

at::Tensor Gpt2::decode_at(const NextTokens& next, const KvCache& cache, Units& units) const {
  const auto x = run_unit(units, embedding_unit_, {}, [&](const Tensors&) {
    return embed(tokens_, next.tokens) + embed(positions_, next.positions);
  });
  const auto attend = [&](const Block& block) -> Attend {
    return [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return cache.attend(static_cast<size_t>(block.index), q, k, v,
                          {.scale = attention_scale(block)});
    };
  };
  return run_blocks(x, {.key = {.training = false}, .documents = {}}, attend, units);
}

at::Tensor Gpt2::run_blocks(at::Tensor x, const Draws& draws,
                            const std::function<Attend(const Block&)>& attend, Units& units) const {
  for (const auto& block : blocks_) {
    x = run_unit(units, block.unit, {x},
                 [this, &block, draws, attend = attend(block)](const Tensors& in) {
                   return run_block(block, in[0], draws, attend);
                 });
  }
  return run_unit(units, head_unit_, {x},
                  [this](const Tensors& in) { return ops::layer_norm(in[0], norm_); });
}

at::Tensor Gpt2::embed_batch(const Batch& batch, const Draws& draws) const {
  const auto rows = ops::embedding_noise(embed(tokens_, batch.tokens, draws.key.adapters),
                                         noise_of(embedding_noise_, batch, draws.key));
  const auto x = rows + position_rows(positions_, batch, draws.key.adapters);
  return ops::dropout(x, draws.at(config_.embd_pdrop, -1, DropoutSite::kEmbedding));
}

at::Tensor Gpt2::run_block(const Block& block, const at::Tensor& x, const Draws& draws,
                           const Attend& attend) const {
  const auto drop = [&](const at::Tensor& y, DropoutSite site) {
    return ops::dropout(y, draws.at(config_.resid_pdrop, block.index, site));
  };
  const auto [stream, a] = ops::add_layer_norm(x, {}, block.norm_1);
  const auto attended = drop(attention(block, a, draws, attend), DropoutSite::kAttentionOutput);
  const auto [h, m] = ops::add_layer_norm(stream, attended, block.norm_2);
  return h + drop(mlp(block, m, draws), DropoutSite::kMlpOutput);
}

at::Tensor Gpt2::attention(const Block& block, const at::Tensor& x, const Draws& draws,
                           const Attend& attend) const {
  // unbind: its gradient is one stack, where three selects would each fill a whole qkv.
  const auto qkv = linear(block.qkv, x, draws)
                       .view({x.size(0), x.size(1), 3, config_.n_head, -1})
                       .unbind(2);  // three of (B, T, H, D)
  const auto y = attend(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2), qkv[2].transpose(1, 2));
  return linear(block.attention_out, y.transpose(1, 2).flatten(2), draws);
}

double Gpt2::attention_scale(const Block& block) const {
  double scale = 1;
  const auto head_dim = config_.n_embd / config_.n_head;
  if (config_.scale_attn_weights) scale /= std::sqrt(static_cast<double>(head_dim));
  if (config_.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(block.index + 1);
  return scale;
}

at::Tensor Gpt2::mlp(const Block& block, const at::Tensor& x, const Draws& draws) const {
  const auto inner =
      at::gelu(linear(block.mlp_in, x, draws), config_.gelu_is_exact ? "none" : "tanh");
  return linear(block.mlp_out, inner, draws);
}

}  // namespace

std::unique_ptr<Model> make_gpt2(const Recipe& recipe) {
  return std::make_unique<Gpt2>(dynamic_cast<const plan::Gpt2Config&>(recipe.architecture()),
                                recipe);
}

}  // namespace skein::model
