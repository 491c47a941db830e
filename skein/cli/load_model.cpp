// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

void leave_out_dropout(plan::GptConfig& config) {
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0;
}
void leave_out_dropout(plan::LlamaConfig& config) { config.attention_dropout = 0; }

}  // namespace

std::unique_ptr<model::Model> load_model(const fs::path& folder, plan::HfConfig config,
                                         at::ScalarType dtype, at::Device device) {
  std::visit([](auto& architecture) { leave_out_dropout(architecture); }, config.architecture);
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
  options.tied_head = plan::has_tied_head(config);
  checkpoint::Reader(folder).load(slices, options);
  for (const auto& parameter : model->table().parameters) {
    parameter.slot->set_requires_grad(parameter.trainable);
  }
  return model;
}

}  // namespace skein::cli
