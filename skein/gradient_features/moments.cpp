// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/moments.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"

namespace skein::gradient_features {
namespace {

constexpr size_t kNamesShown = 3;

// Ours lie under the parameter's own name, those of PEFT's under the name in its file.
std::string stored_name(const checkpoint::ModelFiles& files, const std::string& parameter,
                        const char* state) {
  for (const auto& name : {parameter + state, adapter::file_name(parameter) + state}) {
    if (files.tensors.contains(name)) return name;
  }
  return "";
}

// Why this tensor is not the parameter's state; empty: it is.
std::string mismatch(const checkpoint::ModelFiles& files, const tensor::Parameter& parameter,
                     const std::string& name) {
  if (name.empty()) return parameter.name + " has none";
  const auto& stored = *files.tensors.at(name).tensor;
  if (!std::ranges::equal(stored.shape, parameter.shape, {}, {},
                          [](int64_t size) { return static_cast<uint64_t>(size); })) {
    return fmt::format("{} is ({}) there, ({}) in the model", name, fmt::join(stored.shape, ", "),
                       fmt::join(parameter.shape, ", "));
  }
  if (stored.dtype == DType::kU8) {
    return name + " is in 8 bits (train with optim=adamw_torch)";
  }
  return "";
}

at::Tensor read(const checkpoint::Reader& reader, const tensor::Parameter& parameter,
                const std::string& name, at::Device device) {
  auto data = at::empty({parameter.numel()}, at::kFloat);
  reader.read({.name = name, .shape = parameter.shape, .end = parameter.numel(), .data = data},
              /*foreign=*/false);
  return data.to(device);
}

}  // namespace

std::map<std::string, Moments> read_moments(const fs::path& checkpoint,
                                            const tensor::ParameterTable& table,
                                            const std::vector<std::string>& parameters,
                                            at::Device device) {
  const checkpoint::Reader reader(checkpoint, checkpoint::kOptimizerStem);
  std::vector<std::string> wrong;
  std::map<std::string, Moments> moments;
  for (const auto& name : parameters) {
    const auto& parameter = *table.find(name);
    const auto first = stored_name(reader.files(), name, ".exp_avg");
    const auto second = stored_name(reader.files(), name, ".exp_avg_sq");
    for (const auto& stored : {first, second}) {
      if (auto why = mismatch(reader.files(), parameter, stored); !why.empty()) {
        wrong.push_back(std::move(why));
        break;  // a parameter is named once
      }
    }
    if (!wrong.empty()) continue;
    moments[name] = {read(reader, parameter, first, device),
                     read(reader, parameter, second, device)};
  }
  if (wrong.empty()) return moments;
  const auto more = wrong.size() > kNamesShown
                        ? fmt::format(", and {} more", wrong.size() - kNamesShown)
                        : std::string();
  wrong.resize(std::min(wrong.size(), kNamesShown));
  throw UserError(
      fmt::format("the optimizer's moments in {} are not those of these parameters: "
                  "{}{}; give --gradient_type sgd, or the checkpoint that was trained "
                  "with this adapter",
                  checkpoint.string(), fmt::join(wrong, "; "), more));
}

}  // namespace skein::gradient_features
