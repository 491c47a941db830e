// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/cli/debug_tensors.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/load_model.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/model/model.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/units.h"

namespace skein::cli {
namespace {

at::Tensor read_tokens(const fs::path& path) {
  const auto file = File::open_to_read(path);
  const auto header = checkpoint::read_header(file, path.string());
  for (const auto& entry : header.tensors) {
    if (entry.name != "tokens") continue;
    if (entry.dtype != DType::kI64 || entry.shape.size() != 2) break;
    auto tokens = at::empty(
        {static_cast<int64_t>(entry.shape[0]), static_cast<int64_t>(entry.shape[1])}, at::kLong);
    file.read_at(header.data_begin + entry.begin,
                 {static_cast<std::byte*>(tokens.mutable_data_ptr()), tokens.nbytes()});
    return tokens;
  }
  throw UserError(
      fmt::format("{}: holds no int64 tensor `tokens` of two dimensions", path.string()));
}

tensor::Batch next_token_batch(const at::Tensor& tokens) {
  const int64_t rows = tokens.size(0), length = tokens.size(1);
  const auto last = at::full_like(tokens.narrow(1, 0, 1), tensor::kIgnore);
  tensor::Batch batch;
  batch.tokens = tokens;
  batch.targets = at::cat({tokens.narrow(1, 1, length - 1), last}, 1);
  batch.num_targets = rows * (length - 1);
  return batch;
}

NamedTensors compute(const model::Model& model, const tensor::Batch& batch) {
  tensor::PlainUnits units;
  const auto hidden = model.forward(batch, {.training = false}, units);
  const auto loss = model.head_loss_sum(hidden, batch.targets, {}, units);
  std::vector<const tensor::Parameter*> parameters;
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : model.table().parameters) {
    if (!parameter.trainable) continue;
    parameters.push_back(&parameter);
    leaves.push_back(*parameter.slot);
  }
  const auto gradients = torch::autograd::grad({loss / batch.num_targets}, leaves);

  NamedTensors found{{"logits", model.head_logits(hidden, units).detach()},
                     {"loss_sum", loss.detach().view({1})}};
  for (size_t i = 0; i < leaves.size(); ++i) {
    found["grad." + parameters[i]->name] = model::without_padding(*parameters[i], gradients[i]);
  }
  return found;
}

}  // namespace

int run_debug_forward(std::span<const std::string> arguments) {
  std::optional<DType> dtype;
  std::string adapter;
  FlagSet flags("skein-worker debug-forward");
  flags.add("dtype", dtype);
  flags.add("adapter", adapter);
  const auto files = flags.read(arguments);
  if (files.size() != 3) {
    throw UserError(
        "usage: debug-forward MODEL TOKENS.safetensors OUT.safetensors [--dtype D] [--adapter "
        "DIR]");
  }
  const auto model = load_model(plan::open_model_folder({files[0], adapter, ""}), dtype, at::kCPU);
  write_tensors(files[2], compute(*model, next_token_batch(read_tokens(files[1]))));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace skein::cli
