// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <utility>

#include "skein/cli/commands.h"
#include "skein/cli/debug_tensors.h"
#include "skein/cli/flag_set.h"
#include "skein/core/error.h"
#include "skein/model/model.h"
#include "skein/ops/nf4.h"
#include "skein/plan/hf_config.h"
#include "skein/train/weights.h"

namespace skein::cli {
namespace {

std::unique_ptr<model::Model> build_packed(const plan::HfConfig& config, bool doubly) {
  model::BuildOptions options;
  options.tuning.lora = adapter::AdapterConfig{
      .rank = 1, .alpha = 1, .targets = {.kind = adapter::ModuleChoice::Kind::kAllLinear}};
  options.tuning.four_bits = plan::FourBits{.doubly = doubly};
  return model::build(config, options);
}

}  // namespace

int run_debug_nf4(std::span<const std::string> arguments) {
  bool single = false;
  FlagSet flags("skein-worker debug-nf4");
  flags.add("single", single);
  const auto files = flags.read(arguments);
  if (files.size() != 2) throw UserError("usage: debug-nf4 MODEL OUT.safetensors [--single]");
  const auto config = plan::read_hf_config(files[0]);
  const auto model = build_packed(config, !single);
  train::Slices slices;
  for (const auto& parameter : model->table().parameters) {
    if (!parameter.packed) continue;
    *parameter.slot = model::make_leaf(parameter, at::kCPU);
    slices.push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .dtype = parameter.dtype,
                      .begin = 0,
                      .end = parameter.numel(),
                      .data = *parameter.slot});
  }
  train::BaseWeights(files[0], config, model->table()).load(slices);
  NamedTensors found;
  for (const auto& parameter : model->table().parameters) {
    if (!parameter.packed) continue;
    const auto& [shape, doubly] = *parameter.packed;
    found[parameter.name + ".bytes"] = *parameter.slot;
    found[parameter.name] = ops::dequantise_nf4(
        *parameter.slot, {.rows = shape[0], .columns = shape[1], .doubly = doubly}, at::kFloat);
  }
  write_tensors(files[1], found);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace skein::cli
