// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "skein/ops/embedding.h"
#include "skein/ops/linear.h"
#include "skein/plan/families/shapes.h"

namespace skein::model {
namespace {

using tensor::Init;

bool is_target(const std::vector<std::string>& targets, const std::string& name) {
  return std::ranges::any_of(
      targets, [&](const auto& target) { return name == target || name.ends_with("." + target); });
}

}  // namespace

at::Tensor linear(const Linear& layer, const at::Tensor& x) { return linears({&layer}, x)[0]; }

std::vector<at::Tensor> linears(const std::vector<const Linear*>& layers, const at::Tensor& x) {
  std::vector<ops::LinearParameters> parameters;
  parameters.reserve(layers.size());
  for (const auto* layer : layers) {
    parameters.push_back({layer->transposed ? layer->weight.t() : layer->weight, layer->bias});
  }
  auto outputs = ops::linears(x, parameters);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (const auto& lora = layers[i]->lora) {
      outputs[i] = outputs[i] + at::linear(at::linear(x, lora->a), lora->b) * lora->scale;
    }
  }
  return outputs;
}

UnitBuilder UnitBuilder::root(tensor::ParameterTable& table, const std::string& name,
                              const BuildOptions& options) {
  UnitBuilder builder(table, table.add_unit(name, /*root=*/true), options.dtype);
  builder.frozen_ = options.lora && options.frozen_blocks.empty();
  return builder;
}

UnitBuilder UnitBuilder::block(tensor::ParameterTable& table, const std::string& name, int index,
                               const BuildOptions& options) {
  const bool listed = std::ranges::count(options.frozen_blocks, index) > 0;
  UnitBuilder builder(table, table.add_unit(name), options.dtype);
  if (options.lora && (listed || options.frozen_blocks.empty())) builder.lora_ = &*options.lora;
  builder.frozen_ = listed || builder.lora_;
  return builder;
}

tensor::Parameter& UnitBuilder::add(const std::string& name, std::vector<int64_t> shape, Init init,
                                    at::Tensor& slot) {
  // Hugging Face's rule by shape: its biases and norm weights are the one-dimensional parameters.
  const bool decay = shape.size() > 1;
  table_.add({.name = name,
              .shape = std::move(shape),
              .dtype = dtype_,
              .unit = unit_,
              .init = init,
              .trainable = !frozen_,
              .decay = decay,
              .slot = &slot});
  return table_.parameters.back();
}

void UnitBuilder::add_linear(const std::string& name, const LinearShape& shape, Linear& layer) {
  layer.transposed = shape.transposed;
  auto size = std::vector<int64_t>{shape.out, shape.in};
  if (shape.transposed) std::swap(size[0], size[1]);
  add(name + ".weight", size, {Init::Kind::kNormal, shape.deviation}, layer.weight);
  if (shape.bias) add(name + ".bias", {shape.out}, {Init::Kind::kZeros}, layer.bias);
  if (lora_ && is_target(lora_->targets, name)) add_lora(name, shape, layer);
}

void UnitBuilder::add_lora(const std::string& name, const LinearShape& shape, Linear& layer) {
  const auto rank = lora_->rank;
  auto& lora = layer.lora.emplace();
  lora.scale = lora_->alpha / static_cast<double>(rank);
  // PEFT draws A uniformly below 1/√in in size; the normal of equal deviation is near enough.
  const Init normal{Init::Kind::kNormal, 1 / std::sqrt(3.0 * static_cast<double>(shape.in))};
  const bool frozen = std::exchange(frozen_, false);
  add(name + ".lora_A.weight", {rank, shape.in}, normal, lora.a);
  add(name + ".lora_B.weight", {shape.out, rank}, {Init::Kind::kZeros}, lora.b);
  frozen_ = frozen;
}

void UnitBuilder::add_embedding(const std::string& name, const EmbeddingShape& shape,
                                at::Tensor& weight) {
  auto& parameter = add(name + ".weight", {shape.rows, shape.columns},
                        {Init::Kind::kNormal, shape.deviation}, weight);
  if (shape.head) parameter.padded_rows = plan::padded_head_rows(shape.rows);
}

void UnitBuilder::add_norm(const std::string& name, int64_t channels, at::Tensor& weight,
                           at::Tensor* bias) {
  add(name + ".weight", {channels}, {Init::Kind::kOnes}, weight);
  if (bias) add(name + ".bias", {channels}, {Init::Kind::kZeros}, *bias);
}

void UnitBuilder::add_offset_norm(const std::string& name, int64_t channels, at::Tensor& weight) {
  add(name + ".weight", {channels}, {Init::Kind::kZeros}, weight);
}

ops::Dropout Draws::at(double probability, int64_t layer, ops::DropoutSite site) const {
  ops::Dropout dropout{.probability = key.training ? probability : 0,
                       .stream = ops::dropout_stream(key, layer, site),
                       .documents = documents};
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

at::Tensor position_rows(const at::Tensor& table, const tensor::Batch& batch) {
  return batch.run ? ops::embedding(table, batch.run->positions)
                   : table.narrow(0, 0, batch.tokens.size(1));
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
