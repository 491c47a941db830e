// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/load_model.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <utility>

#include "skein/checkpoint/files/model_check.h"
#include "skein/core/error.h"
#include "skein/plan/run_model.h"
#include "skein/train/folder_model.h"

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

std::unique_ptr<model::Model> load_model(const plan::ModelFolder& folder,
                                         std::optional<DType> asked, at::Device device) {
  for (const auto& part : folder.parts()) checkpoint::check_model(part);
  auto opened = train::build_folder_model(folder, asked, device);
  plan::require_text(opened.config, folder.adapter.empty() ? folder.weights : folder.adapter);
  train::Slices slices;
  const auto leaves = model::make_leaves(opened.model->table(), device);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto& parameter = opened.model->table().parameters[i];
    const auto& leaf = leaves[i];
    slices.push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .dtype = parameter.dtype,
                      .begin = 0,
                      .end = parameter.numel(),
                      .data = model::without_padding(parameter, leaf).view(-1)});
    *parameter.slot = leaf;
  }
  opened.load(slices);
  for (const auto& parameter : opened.model->table().parameters) {
    parameter.slot->set_requires_grad(parameter.trainable);
  }
  return std::move(opened.model);
}

}  // namespace skein::cli
