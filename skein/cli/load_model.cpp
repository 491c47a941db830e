// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"

namespace skein::cli {
fs::path check_model_folder(const fs::path& folder) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("'{}' {}", folder.string(), why));
  };
  if (!fs::exists(folder)) refuse("does not exist: name a folder with config.json and weights");
  if (!fs::is_directory(folder)) refuse("is not a folder: name the one that holds config.json");
  const bool has_weights = fs::exists(folder / "model.safetensors") ||
                           fs::exists(folder / "model.safetensors.index.json");
  if (has_weights && fs::exists(folder / "config.json")) return folder;
  if (fs::exists(folder / "latest" / "config.json")) {
    refuse(fmt::format("holds a run that is not finished; its latest checkpoint is {}",
                       (folder / "latest").string()));
  }
  refuse(has_weights ? "has no config.json" : "has no weights (model.safetensors)");
  return folder;
}

std::unique_ptr<model::Model> load_model(const fs::path& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device) {
  auto model = model::build(config, {.dtype = dtype});
  std::vector<tensor::TensorSlice> slices;
  for (const auto& parameter : model->table().parameters) {
    const auto leaf = at::empty(parameter.shape, at::TensorOptions(device).dtype(parameter.dtype));
    slices.push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .dtype = parameter.dtype,
                      .begin = 0,
                      .end = parameter.numel(),
                      .data = leaf.view(-1)});
    *parameter.slot = leaf;
  }
  checkpoint::LoadOptions options;
  options.tied_head = config.dimensions().tied_head;
  checkpoint::Reader(folder).load(slices, options);
  for (const auto& parameter : model->table().parameters) {
    parameter.slot->set_requires_grad(parameter.trainable);
  }
  return model;
}

}  // namespace skein::cli
