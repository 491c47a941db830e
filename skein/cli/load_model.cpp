// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"

namespace skein::cli {
std::unique_ptr<model::Model> load_model(const fs::path& folder, const plan::HfConfig& config,
                                         at::ScalarType dtype, at::Device device) {
  auto model = model::build(config, {.dtype = dtype});
  std::vector<tensor::TensorSlice> slices;
  for (const auto& parameter : model->table().parameters) {
    const auto leaf = model::make_leaf(parameter, device);
    slices.push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .dtype = parameter.dtype,
                      .begin = 0,
                      .end = parameter.numel(),
                      .data = model::without_padding(parameter, leaf).view(-1)});
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
