// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/sample_gradients.h"

#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "skein/adapter/tensor_names.h"
#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/gradient_features/layer_gradients.h"
#include "skein/gradient_features/sample_losses.h"

namespace skein::gradient_features {
namespace {

bool means(const std::string& word, const std::string& parameter) {
  if (word == "full") return true;
  if (word == "adapter") return adapter::is_adapter_tensor(parameter);
  return ("." + parameter + ".").find("." + word + ".") != std::string::npos;
}

// A document of a run, alone.
tensor::HostBatch one_document(const tensor::HostBatch& run, int64_t document) {
  const auto index = static_cast<size_t>(document);
  const int64_t begin = index == 0 ? 0 : run.document_ends[index - 1];
  const int64_t end = run.document_ends[index];
  const auto cut = [&](const std::vector<int64_t>& values) {
    return std::vector<int64_t>(values.begin() + begin, values.begin() + end);
  };
  tensor::HostBatch one{.rows = 1,
                        .length = end - begin,
                        .tokens = cut(run.tokens),
                        .targets = cut(run.targets),
                        .documents = {run.documents[index]},
                        .document_ends = {static_cast<int32_t>(end - begin)}};
  one.num_targets =
      std::ranges::count_if(one.targets, [](int64_t target) { return target != tensor::kIgnore; });
  return one;
}

}  // namespace

std::vector<std::string> choose_parameters(const tensor::ParameterTable& table,
                                           const std::vector<std::string>& words) {
  std::set<std::string> chosen;
  for (const auto& word : words) {
    const auto before = chosen.size();
    for (const auto& parameter : table.parameters) {
      if (!means(word, parameter.name)) continue;
      if (parameter.packed && word != "full") {
        throw UserError(
            fmt::format("{} is in 4 bits and has no gradient: leave it out of the "
                        "parameters, or load the model without quantization_bit",
                        parameter.name));
      }
      if (!parameter.packed) chosen.insert(parameter.name);
    }
    if (chosen.size() > before) continue;
    throw UserError(word == "adapter"
                        ? std::string("the model has no adapter")
                        : fmt::format("no parameter is called '{}'; names are like {}", word,
                                      table.parameters.back().name));
  }
  std::vector<std::string> names;
  for (const auto& parameter : table.parameters) {
    if (chosen.contains(parameter.name)) names.push_back(parameter.name);
  }
  return names;
}

std::vector<std::string> untapped_parameters(const model::Model& model,
                                             const std::vector<std::string>& parameters) {
  std::set<std::string> reached;
  for (const auto& linear : model.tapped_linears()) {
    for (auto& name : parameters_of(linear)) reached.insert(std::move(name));
  }
  std::vector<std::string> untapped;
  std::ranges::copy_if(parameters, std::back_inserter(untapped),
                       [&](const auto& name) { return !reached.contains(name); });
  return untapped;
}

std::string name_few(std::vector<std::string> names) {
  constexpr size_t kShown = 3;
  const size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : std::string());
}

void require_taps(const model::Model& model, const std::vector<std::string>& parameters,
                  const std::string& who, const std::string& instead) {
  const auto untapped = untapped_parameters(model, parameters);
  if (untapped.empty()) return;
  throw UserError(fmt::format(
      "{} takes weights, biases and LoRA of the blocks' linear layers (without DoRA), not {}: {}",
      who, name_few(untapped), instead));
}

SampleGradients::SampleGradients(const model::Model& model, parallel::Sharded& sharded,
                                 const std::vector<std::string>& parameters, int64_t memory)
    : model_(model),
      sharded_(sharded),
      memory_(memory),
      chosen_(parameters.begin(), parameters.end()),
      untapped_(untapped_parameters(model, parameters)) {
  std::vector<tensor::TapPlace> places;
  for (const auto& linear : model_.tapped_linears()) {
    const auto is_chosen = [this](const auto& name) { return chosen_.contains(name); };
    if (std::ranges::none_of(parameters_of(linear), is_chosen)) continue;
    tapped_[&linear.layer->tap] = &linear;
    places.push_back({linear.unit, &linear.layer->tap});
  }
  if (untapped_.empty()) {
    sharded_.listen(places, {});  // each run brings its own sink
    return;
  }
  for (const auto& parameter : model_.table().parameters) {
    if (!chosen_.contains(parameter.name)) continue;
    parameter.slot->set_requires_grad(true);
    leaves_.push_back(&parameter);
  }
}

SampleGradients::~SampleGradients() {
  sharded_.stop_listening();
  for (const auto* parameter : leaves_) parameter->slot->set_requires_grad(false);
}

void SampleGradients::compute(const tensor::HostBatch& run, const Use& use) {
  if (untapped_.empty()) return compute_together(run, use);
  for (int64_t i = 0; i < std::ssize(run.document_ends); ++i) {
    if (!compute_one(run, i, use)) return;
  }
}

void SampleGradients::compute_together(const tensor::HostBatch& run, const Use& use) {
  bool more = true;  // is wanted
  const auto wanted = [&](const std::string& name) { return more && chosen_.contains(name); };
  compute_layers(run, [&](const model::TappedLinear& linear, const tensor::Tapped& seen) {
    for (const auto& product : outer_products(linear, seen, wanted)) {
      for_rows(product, run.document_ends, memory_, [&](const at::Tensor& rows, int64_t first) {
        more = more && use({product.name, rows, /*first_document=*/0, first});
      });
    }
  });
}

void SampleGradients::compute_layers(const tensor::HostBatch& run, const UseLayer& use) {
  SKEIN_CHECK(untapped_.empty(), "parameters without a tap go one sample at a time");
  sharded_.set_tap_sink([&](int, std::span<const tensor::Tapped> seen) {
    for (const auto& tapped : seen) use(*tapped_.at(tapped.tap), tapped);
  });
  sharded_.begin_micro_batch(0, 1);
  const auto loss = mean_loss_sum(model_, run, sharded_);
  board::enter_phase(board::Phase::kBackward);
  torch::autograd::backward({loss}, {});
  sharded_.end_micro_batch();
}

bool SampleGradients::compute_one(const tensor::HostBatch& run, int64_t document, const Use& use) {
  tensor::PlainUnits units;
  std::vector<at::Tensor> wanted;
  for (const auto* parameter : leaves_) wanted.push_back(*parameter->slot);
  const auto loss = mean_loss_sum(model_, one_document(run, document), units);
  auto found = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/false,
                                     /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (!found[i].defined()) found[i] = at::zeros_like(wanted[i]);
    const auto gradient = model::without_padding(*leaves_[i], std::exchange(found[i], {}));
    const auto dtype = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (!use({leaves_[i]->name, gradient.to(dtype).contiguous().view({1, -1}), document, 0})) {
      return false;
    }
  }
  return true;
}

}  // namespace skein::gradient_features
