// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <utility>

#include "skein/checkpoint/files/model_check.h"
#include "skein/core/error.h"
#include "skein/tensor/dtype.h"
#include "skein/train/weights.h"

namespace skein::cli {

at::Device device_of(const std::string& name) {
  const bool has_cuda = at::hasCUDA();
  if (name == "cpu" || (name == "auto" && !has_cuda)) return at::kCPU;
  if (name != "auto" && name != "cuda" && !name.starts_with("cuda:")) {
    throw UserError(fmt::format("--device is '{}', expected auto, cpu, cuda or cuda:N", name));
  }
  if (!has_cuda) {
    throw UserError(fmt::format(
        "--device {}: no usable GPU (none visible, or a build without CUDA); --device cpu works",
        name));
  }
  try {
    return at::Device(name == "auto" || name == "cuda" ? "cuda:0" : name);
  } catch (const c10::Error&) {
    throw UserError(fmt::format("--device is '{}', expected auto, cpu, cuda or cuda:N", name));
  }
}

at::ScalarType working_dtype(std::optional<DType> asked, const plan::HfConfig& config,
                             const at::Device& device) {
  const bool is_16_bit = config.dtype == "bfloat16" || config.dtype == "float16";
  const auto usual = is_16_bit && device.is_cuda() ? DType::kBF16 : DType::kF32;
  return tensor::scalar_type_of(asked.value_or(usual));
}

std::unique_ptr<model::Model> load_model(const ModelFolder& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device) {
  for (const auto& part : {folder.weights, folder.adapter}) {
    if (!part.empty()) checkpoint::check_model(part);
  }
  model::BuildOptions options{.dtype = dtype};
  if (!folder.adapter.empty()) options.tuning.lora = train::adapter_to_use(folder.adapter);
  auto model = model::build(config, options);
  const auto& table = model->table();
  train::Slices slices;
  for (const auto& parameter : table.parameters) {
    const auto leaf = model::make_leaf(parameter, device);
    slices.push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .dtype = parameter.dtype,
                      .begin = 0,
                      .end = parameter.numel(),
                      .data = model::without_padding(parameter, leaf).view(-1)});
    *parameter.slot = leaf;
  }
  train::BaseWeights(folder.weights, config, table).load(slices);
  if (!folder.adapter.empty()) train::load_adapter(folder.adapter, table, slices);
  for (const auto& parameter : table.parameters) {
    parameter.slot->set_requires_grad(parameter.trainable);
  }
  return model;
}

}  // namespace skein::cli
