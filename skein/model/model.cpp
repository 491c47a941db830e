// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>

#include <map>
#include <utility>

#include "skein/core/error.h"
#include "skein/model/families.h"
#include "skein/ops/attention.h"
#include "skein/ops/init.h"

namespace skein::model {

at::Tensor Model::forward(const tensor::Batch& batch, const tensor::StepKey& key,
                          tensor::Units& units) const {
  const tensor::ForwardPass pass(units);
  return hidden_states(batch, key, units);
}

KvCache Model::make_cache() const { return {kv_shape(), head_weight().options()}; }

at::Tensor Model::decode(const at::Tensor& tokens, const KvCache& cache, tensor::Units& units,
                         std::span<const int64_t> lengths) const {
  SKEIN_CHECK(cache.positions().numel() == tokens.numel(), "one position per token");
  SKEIN_CHECK(!turns_by_length() || std::ssize(lengths) == tokens.size(0), "one length per row");
  const NextTokens next{tokens, cache.positions().view_as(tokens), lengths};
  const at::NoGradGuard no_grad;
  const tensor::ForwardPass pass(units);
  return decode_at(next, cache, units);
}

at::Tensor Model::head_loss_sum(const at::Tensor& hidden, const at::Tensor& targets,
                                const at::Tensor& weights, tensor::Units& units,
                                double smoothing) const {
  const auto block = [this, targets, weights, smoothing](const tensor::Tensors& in) {
    return ops::linear_cross_entropy_sum(
        head_product(in[0].flatten(0, 1)), targets.flatten(),
        weights.defined() ? weights.flatten() : weights,
        {.vocabulary = vocab_size(), .cap = logit_cap(), .smoothing = smoothing});
  };
  return run_unit(units, head_unit(), {hidden}, block);
}

at::Tensor Model::head_loss_sum(const at::Tensor& hidden, const tensor::Batch& batch, double weight,
                                tensor::Units& units, double smoothing) const {
  auto rows = hidden, targets = batch.targets;
  if (batch.run) {
    rows = hidden.index_select(1, batch.run->places);
    targets = targets.index_select(1, batch.run->places);
  }
  const auto weights = at::full(targets.sizes(), weight, targets.options().dtype(at::kDouble));
  return head_loss_sum(rows, targets, weights, units, smoothing);
}

TokenNumbers Model::head_log_probs(const at::Tensor& hidden, const at::Tensor& targets,
                                   tensor::Units& units, const HeadWish& wish) const {
  const auto block = [this, targets, wish](const tensor::Tensors& in) -> tensor::Tensors {
    const auto [log_probs, entropy, mean_logits] =
        ops::linear_log_probs(head_product(in[0].flatten(0, 1), wish.adapters), targets.flatten(),
                              {.vocabulary = vocab_size(),
                               .cap = logit_cap(),
                               .temperature = wish.temperature,
                               .entropy = wish.entropy,
                               .mean_logit = wish.mean_logit});
    tensor::Tensors out{log_probs};
    if (wish.entropy) out.push_back(entropy);
    if (wish.mean_logit) out.push_back(mean_logits);
    for (auto& tensor : out) tensor = tensor.view(targets.sizes());
    return out;
  };
  const auto out = units.run(head_unit(), block, {hidden});
  TokenNumbers numbers{out[0]};
  if (wish.entropy) numbers.entropy = out[1];
  if (wish.mean_logit) numbers.mean_logits = out.back();
  return numbers;
}

TokenNumbers Model::head_log_probs(const at::Tensor& hidden, const tensor::Batch& batch,
                                   tensor::Units& units, const HeadWish& wish) const {
  if (!batch.run) return head_log_probs(hidden, batch.targets, units, wish);
  const auto& places = batch.run->places;
  auto numbers = head_log_probs(hidden.index_select(1, places),
                                batch.targets.index_select(1, places), units, wish);
  for (auto* one : {&numbers.log_probs, &numbers.entropy, &numbers.mean_logits}) {
    if (one->defined()) *one = one->squeeze(0);
  }
  return numbers;
}

at::Tensor Model::head_logits(const at::Tensor& hidden, tensor::Units& units) const {
  const auto block = [this](const tensor::Tensors& in) {
    const auto [rows, weight, inner, b, factor] = head_product(in[0]);
    auto logits = at::linear(rows, weight);
    if (b.defined()) logits = logits + at::linear(inner, b.to(rows.scalar_type()));
    if (factor.defined()) logits = (logits * factor).to(rows.scalar_type());
    logits = logits.narrow(-1, 0, vocab_size());
    return logit_cap() > 0 ? ops::soft_cap(logits, logit_cap()) : logits;
  };
  return run_unit(units, head_unit(), {hidden}, block);
}

at::Tensor Model::head_scores(const at::Tensor& hidden, const at::Tensor& places,
                              tensor::Units& units) const {
  SKEIN_CHECK(has_scores(), "the model scores texts");
  const auto block = [this, places](const tensor::Tensors& in) {
    const auto rows = in[0].flatten(0, 1).index_select(0, places);
    // Scores in 16 bits would lie on a grid on which close pairs are ties.
    const auto type = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return at::linear(rows.to(type), score_weight()->to(type)).squeeze(1);
  };
  return run_unit(units, head_unit(), {hidden}, block);
}

ops::HeadProduct Model::head_product(const at::Tensor& hidden, bool adapters) const {
  SKEIN_CHECK(!has_scores(), "a model that scores has no logits");
  ops::HeadProduct product{hidden, head_weight()};
  const auto& lora = head_lora();
  if (!lora || !adapters) return product;
  const auto& weight = product.weight;
  const int64_t rows = lora->b.size(0), padding = weight.size(0) - rows;
  product.inner = at::linear(hidden, lora->a.to(hidden.scalar_type()));
  product.b = at::constant_pad_nd(lora->b * lora->scale, {0, 0, 0, padding});
  if (lora->magnitude.defined()) {
    const auto factor = dora_factor(weight.narrow(0, 0, rows), *lora);
    product.factor = at::constant_pad_nd(factor, {0, padding});
  }
  return product;
}

void Model::fill_magnitudes(std::span<const tensor::TensorSlice> slices,
                            tensor::Units& units) const {
  if (dora_.empty()) return;
  const at::NoGradGuard no_grad;
  const tensor::ForwardPass pass(units);
  for (const auto& layer : dora_) {
    const auto lengths =
        run_unit(units, layer.unit, {}, [&](const tensor::Tensors&) { return layer.lengths(); });
    for (const auto& slice : slices) {
      if (slice.name != layer.name) continue;
      slice.data.copy_(lengths.slice(0, slice.begin, slice.end));
    }
  }
}

StandingWeights::StandingWeights(const Model& model) : model_(model) {
  for (const auto& layer : model_.dora_) {
    SKEIN_CHECK(!layer.lora->standing.on, "somebody holds the weights already");
    layer.lora->standing.on = true;
  }
}

StandingWeights::~StandingWeights() {
  for (const auto& layer : model_.dora_) layer.lora->standing = {};
}

std::unique_ptr<Model> build(const plan::HfConfig& config, const BuildOptions& options) {
  const auto tuned = plan::tune(config.architecture, options.tuning);
  const Recipe recipe(options, tuned);
  auto model = make_model(config.family, recipe);
  model->dora_ = std::move(recipe.found().dora);
  model->linears_ = std::move(recipe.found().linears);
  return model;
}

at::Tensor make_leaf(const tensor::Parameter& parameter, at::Device device) {
  auto leaf = at::empty(parameter.memory_shape(), at::TensorOptions(device).dtype(parameter.dtype));
  if (parameter.padded_rows > 0) leaf.slice(0, parameter.shape[0]).zero_();
  return leaf;
}

std::vector<at::Tensor> make_leaves(const tensor::ParameterTable& table, at::Device device) {
  constexpr int64_t kAlignment = 128;  // elements
  const auto room = [](const tensor::Parameter& parameter) {
    return (parameter.memory_numel() + kAlignment - 1) / kAlignment * kAlignment;
  };
  using Place = std::pair<int, at::ScalarType>;  // a unit's parameters of one type
  std::map<Place, int64_t> sizes, used;
  for (const auto& one : table.parameters) sizes[{one.unit, one.dtype}] += room(one);
  std::map<Place, at::Tensor> memory;
  std::vector<at::Tensor> leaves;
  for (const auto& one : table.parameters) {
    const Place place{one.unit, one.dtype};
    auto& whole = memory[place];
    if (!whole.defined()) {
      whole = at::empty({sizes[place]}, at::TensorOptions(device).dtype(one.dtype));
    }
    const auto begin = std::exchange(used[place], used[place] + room(one));
    const auto own = whole.narrow(0, begin, one.memory_numel()).view(one.memory_shape());
    leaves.push_back(own.variable_data());
    if (one.padded_rows > 0) leaves.back().slice(0, one.shape[0]).zero_();
  }
  return leaves;
}

at::Tensor without_padding(const tensor::Parameter& parameter, const at::Tensor& leaf) {
  return parameter.padded_rows > 0 ? leaf.narrow(0, 0, parameter.shape[0]) : leaf;
}

void materialise(const tensor::ParameterTable& table, at::Device device, uint64_t seed) {
  auto leaves = make_leaves(table, device);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto& parameter = table.parameters[i];
    auto& leaf = leaves[i];
    if (!leaf.is_meta()) {
      ops::initialise(without_padding(parameter, leaf).view(-1), 0, parameter, seed);
    }
    *parameter.slot = leaf.set_requires_grad(parameter.trainable);
  }
}

}  // namespace skein::model
