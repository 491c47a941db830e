// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/cost/flops.h"

#include <algorithm>

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

// Does it take part in a matrix product of every token? The tokens' embedding does as the head.
bool is_product(const ParameterShape& parameter) {
  return parameter.kind == ModuleKind::kLinear || parameter.kind == ModuleKind::kTransposedLinear ||
         parameter.padded_rows > 0;
}

}  // namespace

int64_t matmul_parameters(const Dimensions& d) {
  const int64_t attention = d.channels * (2 * d.query_width + 2 * d.key_width);
  const int64_t mlp = (d.gated ? 3 : 2) * d.channels * d.inner;
  return d.layers * (attention + mlp) + d.vocabulary * d.channels;
}

double training_flops_per_token(const Dimensions& d, int64_t sequence_length) {
  return 6 * static_cast<double>(matmul_parameters(d)) + attention_flops(d, sequence_length);
}

TrainingFlops::TrainingFlops(const Dimensions& d, const Shapes& shapes)
    : dimensions_(d), products_(6 * static_cast<double>(matmul_parameters(d))) {
  const auto reached = reached_units(shapes);
  for (const auto& parameter : shapes.parameters) {
    const auto size = static_cast<double>(parameter.numel());
    if (parameter.adapter && parameter.shape.size() > 1) products_ += 6 * size;
    if (parameter.adapter || parameter.trainable || !is_product(parameter)) continue;
    const bool backward = reached[static_cast<size_t>(parameter.unit)] || parameter.padded_rows > 0;
    products_ -= (backward ? 2 : 4) * size;
  }
  int64_t forward_alone = 0;  // blocks
  for (size_t unit = 0; unit < shapes.units.size(); ++unit) {
    if (!shapes.units[unit].root && !reached[unit]) ++forward_alone;
  }
  attention_share_ -= static_cast<double>(forward_alone) / static_cast<double>(d.layers) * 2 / 3;
}

double TrainingFlops::per_token(int64_t sequence_length) const {
  return products_ + attention_flops(dimensions_, sequence_length) * attention_share_;
}

double TrainingFlops::of_document(int64_t num_tokens) const {
  return per_token(num_tokens) * static_cast<double>(num_tokens);
}

double model_flops_utilisation(double flops_per_second, double peak_flops, int64_t num_devices) {
  return flops_per_second / (peak_flops * static_cast<double>(num_devices));
}

}  // namespace skein::plan
