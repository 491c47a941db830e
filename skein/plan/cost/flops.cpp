// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/cost/flops.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "skein/plan/cost/reach.h"

namespace skein::plan {
namespace {

// Of a row's t-th token attention needs min(t, window) products: T/2 on average without a window.
double attention_flops(const Dimensions& d, int64_t sequence_length) {
  const auto width = static_cast<double>(d.query_width);
  const auto whole = static_cast<double>(sequence_length);
  const auto full_layers = static_cast<double>(d.layers - d.windowed_layers);
  const auto window = static_cast<double>(std::min(d.window, sequence_length));
  const double seen = d.windowed_layers > 0 ? 2 * window - window * window / whole : 0;
  return 6 * width * (full_layers * whole + static_cast<double>(d.windowed_layers) * seen);
}

int64_t projection_parameters(const Dimensions& d) {
  return d.layers * d.channels * (2 * d.query_width + 2 * d.key_width);
}
int64_t mlp_parameters(const Dimensions& d) {
  return d.layers * (d.gated ? 3 : 2) * d.channels * d.inner;
}
int64_t head_parameters(const Dimensions& d) { return (d.scores ? 1 : d.vocabulary) * d.channels; }

// Does it take part in a matrix product of every token? The tokens' embedding does as the head.
bool is_product(const ParameterShape& parameter) {
  return parameter.kind == ModuleKind::kLinear || parameter.kind == ModuleKind::kTransposedLinear ||
         parameter.padded_rows > 0;
}

}  // namespace

int64_t matmul_parameters(const Dimensions& d) {
  return projection_parameters(d) + mlp_parameters(d) + head_parameters(d);
}

double training_flops_per_token(const Dimensions& d, int64_t sequence_length) {
  return 6 * static_cast<double>(matmul_parameters(d)) + attention_flops(d, sequence_length);
}

TrainingFlops::Component TrainingFlops::component_of(const ParameterShape& parameter) {
  if (parameter.adapter) return kAdapters;
  if (parameter.padded_rows > 0) return kHead;
  // "model.layers.0.self_attn.q_proj.weight", "h.0.attn.c_attn.weight"
  return parameter.name.find("attn.") != std::string::npos ? kProjections : kMlp;
}

TrainingFlops::TrainingFlops(const Dimensions& d, const Shapes& shapes) : dimensions_(d) {
  products_[kProjections] = 6 * static_cast<double>(projection_parameters(d));
  products_[kMlp] = 6 * static_cast<double>(mlp_parameters(d));
  products_[kHead] = 6 * static_cast<double>(head_parameters(d));
  const auto reached = reached_units(shapes);
  for (const auto& parameter : shapes.parameters) {
    const auto size = static_cast<double>(parameter.numel());
    auto& product = products_[component_of(parameter)];
    if (parameter.adapter && parameter.shape.size() > 1) product += 6 * size;
    if (parameter.adapter || parameter.trainable || !is_product(parameter)) continue;
    const bool backward = reached[static_cast<size_t>(parameter.unit)] || parameter.padded_rows > 0;
    product -= (backward ? 2 : 4) * size;
  }
  int64_t forward_alone = 0;  // blocks
  for (size_t unit = 0; unit < shapes.units.size(); ++unit) {
    if (!shapes.units[unit].root && !reached[unit]) ++forward_alone;
  }
  attention_share_ -= static_cast<double>(forward_alone) / static_cast<double>(d.layers) * 2 / 3;
}

double TrainingFlops::per_token(int64_t sequence_length) const {
  return std::accumulate(products_.begin(), products_.end(), 0.0) +
         attention_flops(dimensions_, sequence_length) * attention_share_;
}

std::vector<FlopsPart> TrainingFlops::parts(std::span<const int64_t> lengths) const {
  double tokens = 0, attention = 0;
  for (const int64_t length : lengths) {
    const auto count = static_cast<double>(length);
    tokens += count;
    attention += attention_flops(dimensions_, length) * attention_share_ * count;
  }
  std::vector<FlopsPart> parts = {{"attention projections", products_[kProjections] * tokens},
                                  {"attention", attention},
                                  {"MLP", products_[kMlp] * tokens},
                                  {"head", products_[kHead] * tokens}};
  if (products_[kAdapters] > 0) parts.push_back({"adapters", products_[kAdapters] * tokens});
  return parts;
}

double TrainingFlops::of_document(int64_t num_tokens) const {
  return per_token(num_tokens) * static_cast<double>(num_tokens);
}

double model_flops_utilisation(double flops_per_second, double peak_flops, int64_t num_devices) {
  return flops_per_second / (peak_flops * static_cast<double>(num_devices));
}

}  // namespace skein::plan
