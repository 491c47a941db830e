// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <cmath>
#include <utility>

#include "skein/adapter/tensor_names.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/random.h"
#include "skein/ops/embedding.h"
#include "skein/ops/linear.h"
#include "skein/plan/families/shapes.h"
#include "skein/tensor/dtype.h"

namespace skein::model {
namespace {

using tensor::Init;

// (out, in); of 4 bits their values in `dtype`.
at::Tensor weight_of(const Linear& layer, at::ScalarType dtype) {
  if (layer.nf4) return ops::dequantise_nf4(layer.weight, *layer.nf4, dtype);
  return layer.transposed ? layer.weight.t() : layer.weight;
}

// Without its adapter.
ops::LinearParameters base_of(const Linear& layer) {
  if (layer.nf4) return {.weight = layer.weight, .bias = layer.bias, .nf4 = layer.nf4};
  return {.weight = layer.transposed ? layer.weight.t() : layer.weight, .bias = layer.bias};
}

ops::LowRank low_rank(const Lora& lora, const Draws& draws) {
  return {.a = lora.a, .b = lora.b, .scale = lora.scale, .dropout = draws.at(lora)};
}

// As PEFT defines it: with dropout, what the factor adds sees the dropped input, the weight itself
// the whole one.
at::Tensor dora_linear(const Linear& layer, const at::Tensor& x, const Draws& draws) {
  const auto& lora = *layer.lora;
  const auto factor = dora_factor(weight_of(layer, x.scalar_type()), lora);
  const auto dropout = draws.at(lora);
  const auto input = ops::dropout(x, dropout);
  const auto whole_layer = base_of(layer);
  auto dropped_layer = whole_layer;
  dropped_layer.bias.reset();
  auto scaled_layer = dropped_layer;
  scaled_layer.low_rank = ops::LowRank{.a = lora.a, .b = lora.b, .scale = lora.scale};
  const auto scaled = ops::linears(input, {scaled_layer})[0] * factor;
  if (dropout.probability == 0) {
    return (layer.bias.defined() ? scaled + layer.bias : scaled).to(x.scalar_type());
  }
  const auto whole = ops::linears(x, {whole_layer})[0];
  const auto dropped = ops::linears(input, {dropped_layer})[0];
  return (whole + (scaled - dropped)).to(x.scalar_type());
}

}  // namespace

at::Tensor row_lengths(const at::Tensor& weight, const Lora& lora) {
  // |w + s·BA|² = |w|² + 2s w·BA + s²|BA|², row by row: nothing of the weight's size is made.
  const at::NoGradGuard no_grad;
  const auto wide = lora.a.scalar_type();
  const auto own = at::linalg_vector_norm(weight, 2, {1}, /*keepdim=*/false, wide).square();
  const auto mixed = at::mm(weight, lora.a.t().to(weight.scalar_type())).to(wide) * lora.b;
  const auto added = at::mm(lora.b, at::mm(lora.a, lora.a.t())) * lora.b;
  return (own + 2 * lora.scale * mixed.sum(1) + lora.scale * lora.scale * added.sum(1)).sqrt();
}

at::Tensor dora_factor(const at::Tensor& weight, const Lora& lora) {
  auto& [stands, lengths] = lora.standing;
  if (!stands) return lora.magnitude / row_lengths(weight, lora);
  if (!lengths.defined()) lengths = row_lengths(weight, lora);
  return lora.magnitude / lengths;
}

at::Tensor linear(const Linear& layer, const at::Tensor& x, const Draws& draws) {
  return linears({&layer}, x, draws)[0];
}

std::vector<at::Tensor> linears(const std::vector<const Linear*>& layers, const at::Tensor& x,
                                const Draws& draws) {
  const auto is_adapted = [&](const Linear* layer) { return layer->lora && draws.key.adapters; };
  const auto is_dora = [&](const Linear* layer) {
    return is_adapted(layer) && layer->lora->magnitude.defined();
  };
  std::vector<ops::LinearParameters> parameters;
  parameters.reserve(layers.size());
  for (const auto* layer : layers) {
    if (is_dora(layer)) continue;
    parameters.push_back(base_of(*layer));
    if (is_adapted(layer)) parameters.back().low_rank = low_rank(*layer->lora, draws);
  }
  auto outputs = parameters.empty() ? tensor::Tensors() : ops::linears(x, parameters);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!is_dora(layers[i])) continue;
    outputs.insert(outputs.begin() + static_cast<ptrdiff_t>(i), dora_linear(*layers[i], x, draws));
  }
  for (size_t i = 0; i < layers.size(); ++i) outputs[i] = layers[i]->tap.pass(x, outputs[i]);
  return outputs;
}

at::Tensor embed(const Embedding& table, const at::Tensor& tokens, bool adapters) {
  auto rows = ops::embedding(table.weight, tokens);
  if (!table.lora || !adapters) return rows;
  const auto& lora = *table.lora;
  const auto inner = ops::embedding(lora.a.t(), tokens);
  auto sum = rows + at::linear(inner, lora.b) * lora.scale;
  if (lora.magnitude.defined()) {
    const auto own = table.weight.narrow(0, 0, lora.a.size(1)).t();  // (C, V)
    sum = sum * dora_factor(own, lora);
  }
  return sum.to(rows.scalar_type());
}

Recipe::Recipe(const BuildOptions& options, const plan::TunedModel& tuned)
    : dtype_(options.dtype),
      embedding_noise_(options.embedding_noise),
      tuned_(tuned),
      doubly_quantised_(options.tuning.four_bits && options.tuning.four_bits->doubly),
      found_(std::make_shared<Found>()) {
  for (const auto& parameter : tuned.shapes.parameters) {
    if (parameter.trainable) trainable_.insert(parameter.name);
    if (parameter.packed_bytes > 0) packed_.insert(parameter.name);
  }
}

at::ScalarType Recipe::adapter_dtype() const {
  return tensor::scalar_type_of(plan::adapter_dtype(tensor::dtype_of(dtype_)));
}

const plan::LoraShape* Recipe::adapter_of(const std::string& module) const {
  const auto found = tuned_.adapters.find(module);
  return found == tuned_.adapters.end() ? nullptr : &found->second;
}

UnitBuilder UnitBuilder::root(tensor::ParameterTable& table, const std::string& name,
                              const Recipe& recipe) {
  return {table, table.add_unit(name, /*root=*/true), -1, recipe};
}

UnitBuilder UnitBuilder::block(tensor::ParameterTable& table, const std::string& name, int index,
                               const Recipe& recipe) {
  return {table, table.add_unit(name), index, recipe};
}

tensor::Parameter& UnitBuilder::add(const std::string& name, std::vector<int64_t> shape, Init init,
                                    at::Tensor& slot) {
  // Hugging Face's rule by shape: its biases and norm weights are the one-dimensional parameters.
  const bool decay = shape.size() > 1;
  table_.add({.name = name,
              .shape = std::move(shape),
              .dtype = recipe_.dtype(),
              .unit = unit_,
              .init = init,
              .trainable = recipe_.trains(name),
              .decay = decay,
              .slot = &slot});
  return table_.parameters.back();
}

void UnitBuilder::add_linear(const std::string& name, const LinearShape& shape, Linear& layer) {
  layer.transposed = shape.transposed;
  auto size = std::vector<int64_t>{shape.out, shape.in};
  if (shape.transposed) std::swap(size[0], size[1]);
  if (recipe_.packs(name + ".weight")) {
    add_packed(name + ".weight", size, shape.deviation, layer);
  } else {
    add(name + ".weight", size, {Init::Kind::kNormal, shape.deviation}, layer.weight);
  }
  if (shape.bias) add(name + ".bias", {shape.out}, {Init::Kind::kZeros}, layer.bias);
  const auto weight = [&layer, dtype = recipe_.dtype()] { return weight_of(layer, dtype); };
  add_adapter(name, {shape.in, shape.out, false, weight}, layer.lora);
  recipe_.found().linears.push_back({name, unit_, &layer});
}

void UnitBuilder::add_packed(const std::string& name, const std::vector<int64_t>& shape,
                             double deviation, Linear& layer) {
  layer.nf4 = {.rows = shape[0],
               .columns = shape[1],
               .doubly = recipe_.doubly_quantised(),
               .transposed = layer.transposed};
  table_.add({.name = name,
              .shape = {layer.nf4->layout().bytes()},
              .dtype = at::kByte,
              .unit = unit_,
              .init = {Init::Kind::kNormal, deviation},
              .trainable = false,
              .packed = tensor::PackedShape{.shape = shape, .doubly = layer.nf4->doubly},
              .slot = &layer.weight});
}

void UnitBuilder::add_embedding(const std::string& name, const EmbeddingShape& shape,
                                Embedding& table) {
  auto& parameter = add(name + ".weight", {shape.rows, shape.columns},
                        {Init::Kind::kNormal, shape.deviation}, table.weight);
  if (shape.head) parameter.padded_rows = plan::padded_head_rows(shape.rows);
  const auto weight = [&table, rows = shape.rows] { return table.weight.narrow(0, 0, rows).t(); };
  add_adapter(name, {shape.rows, shape.columns, true, weight}, table.lora);
}

void UnitBuilder::add_head(const std::string& name, const EmbeddingShape& shape, Linear& head,
                           const Embedding* tied) {
  if (!tied) {
    auto& parameter = add(name + ".weight", {shape.rows, shape.columns},
                          {Init::Kind::kNormal, shape.deviation}, head.weight);
    parameter.padded_rows = plan::padded_head_rows(shape.rows);
  }
  const auto weight = [&head, tied, rows = shape.rows] {
    return (tied ? tied->weight : head.weight).narrow(0, 0, rows);
  };
  add_adapter(name, {shape.columns, shape.rows, false, weight}, head.lora);
}

void UnitBuilder::add_score(const std::string& name, int64_t channels, double deviation,
                            at::Tensor& weight) {
  add(name, {1, channels}, {Init::Kind::kNormal, deviation}, weight);
}

void UnitBuilder::add_adapter(const std::string& name, const AdapterShape& shape,
                              std::optional<Lora>& place) {
  const auto* adapter = recipe_.adapter_of(name);
  if (!adapter) return;
  auto& lora = place.emplace();
  lora.scale = adapter->scale;
  lora.dropout = adapter->dropout;
  lora.layer = layer_;
  lora.site = hash64(name);
  const auto add_part = [&](const char* suffix, std::vector<int64_t> size, Init init,
                            at::Tensor& slot) {
    auto& parameter = add(name + suffix, std::move(size), init, slot);
    parameter.dtype = recipe_.adapter_dtype();
    parameter.decay = true;  // Hugging Face's rule by name: the magnitude decays too
  };
  // PEFT's distributions, of which the product is zero.
  const double bound = 1 / std::sqrt(static_cast<double>(shape.in));
  const Init zeros{Init::Kind::kZeros};
  if (shape.embedding) {
    add_part(adapter::kEmbeddingA, {adapter->rank, shape.in}, zeros, lora.a);
    add_part(adapter::kEmbeddingB, {shape.out, adapter->rank}, {Init::Kind::kNormal, 1}, lora.b);
  } else {
    add_part(adapter::kLoraA, {adapter->rank, shape.in}, {Init::Kind::kUniform, bound}, lora.a);
    add_part(adapter::kLoraB, {shape.out, adapter->rank}, zeros, lora.b);
  }
  if (!adapter->dora) return;
  // Ones, until the weights are known: see Model::first_magnitudes().
  add_part(adapter::kMagnitude, {shape.out}, {Init::Kind::kOnes}, lora.magnitude);
  recipe_.found().dora.push_back(
      {name + adapter::kMagnitude, unit_, &lora,
       [&lora, weight = shape.weight] { return row_lengths(weight(), lora); }});
}

void UnitBuilder::add_norm(const std::string& name, int64_t channels, at::Tensor& weight,
                           at::Tensor* bias) {
  add(name + ".weight", {channels}, {Init::Kind::kOnes}, weight);
  if (bias) add(name + ".bias", {channels}, {Init::Kind::kZeros}, *bias);
}

void UnitBuilder::add_offset_norm(const std::string& name, int64_t channels, at::Tensor& weight) {
  add(name + ".weight", {channels}, {Init::Kind::kZeros}, weight);
}

ops::Dropout Draws::at(const Lora& lora) const {
  auto dropout = at(lora.dropout, lora.layer, ops::DropoutSite::kAdapter);
  dropout.stream = random::mix(dropout.stream, lora.site);
  return dropout;
}

ops::Dropout Draws::at(double probability, int64_t layer, ops::DropoutSite site) const {
  ops::Dropout dropout{.probability = key.training ? probability : 0,
                       .stream = ops::dropout_stream(key, layer, site),
                       .documents = documents};
  SKEIN_CHECK(dropout.probability == 0 || !run || !run->shared.any(),
              "a shared prompt draws once, which answers alone would not");
  // Attention takes a run document by document.
  if (run && site != ops::DropoutSite::kAttention) {
    dropout.documents = run->documents;
    dropout.positions = run->positions;
  }
  return dropout;
}

Attend attend_within(const tensor::Batch& batch, const ops::AttentionOptions& options) {
  return [run = batch.run, options](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return run ? ops::document_attention(q, k, v, *run, options)
               : ops::causal_attention(q, k, v, options);
  };
}

at::Tensor position_rows(const Embedding& table, const tensor::Batch& batch, bool adapters) {
  if (batch.run) return embed(table, batch.run->positions, adapters);
  const auto length = batch.tokens.size(1);
  if (table.lora && adapters) return embed(table, at::arange(length, batch.tokens.options()));
  return table.weight.narrow(0, 0, length);
}

int64_t longest_document(const tensor::Batch& batch) {
  return batch.run ? batch.run->longest : batch.tokens.size(1);
}

at::Tensor run_unit(tensor::Units& units, int unit, const tensor::Tensors& inputs,
                    std::function<at::Tensor(const tensor::Tensors&)> block) {
  const auto list = [block = std::move(block)](const tensor::Tensors& in) {
    return tensor::Tensors{block(in)};
  };
  return units.run(unit, list, inputs)[0];
}

}  // namespace skein::model
