// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"

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

namespace {

using Slices = std::vector<tensor::TensorSlice>;

tensor::TensorSlice slice_of(const tensor::Parameter& parameter, std::string name) {
  return {.name = std::move(name),
          .shape = parameter.shape,
          .dtype = parameter.dtype,
          .begin = 0,
          .end = parameter.numel(),
          .data = model::without_padding(parameter, *parameter.slot).view(-1)};
}

bool is_adapter(const tensor::Parameter& parameter) {
  return parameter.name.find(".lora_") != std::string::npos;
}

// Adapters, modules that were trained whole, and weights that PEFT saved beside adapters of them.
void load_adapter(const fs::path& folder, const tensor::ParameterTable& table) {
  const std::string prefix = "base_model.model.";
  const checkpoint::Reader reader(folder, adapter::kTensorStem);
  const auto& stored = reader.files().tensors;
  Slices slices;
  for (const auto& parameter : table.parameters) {
    const auto dot = parameter.name.rfind('.');
    const auto whole = prefix + parameter.name;
    const auto beside =
        prefix + parameter.name.substr(0, dot) + ".base_layer" + parameter.name.substr(dot);
    if (is_adapter(parameter) || stored.contains(whole)) {
      slices.push_back(slice_of(parameter, whole));
    } else if (stored.contains(beside)) {
      slices.push_back(slice_of(parameter, beside));
    }
  }
  reader.load(slices, {.tied_head = false, .foreign = false});
}

}  // namespace

std::unique_ptr<model::Model> load_model(const fs::path& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device,
                                         const fs::path& adapter) {
  model::BuildOptions build{.dtype = dtype};
  if (!adapter.empty()) build.tuning.lora = adapter::read_adapter_config(adapter);
  auto model = model::build(config, build);
  const auto& table = model->table();
  Slices slices;
  for (const auto& parameter : table.parameters) {
    *parameter.slot = model::make_leaf(parameter, device);
    if (is_adapter(parameter)) continue;
    slices.push_back(slice_of(parameter, model::name_in_base(parameter, table, config)));
  }
  checkpoint::LoadOptions options;
  options.tied_head = config.dimensions().tied_head;
  checkpoint::Reader(folder).load(slices, options);
  if (!adapter.empty()) load_adapter(adapter, table);
  for (const auto& parameter : table.parameters) {
    parameter.slot->set_requires_grad(parameter.trainable);
  }
  return model;
}

}  // namespace skein::cli
