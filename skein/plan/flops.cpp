// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/flops.h"

#include <algorithm>

namespace skein::plan {

int64_t matmul_parameters(const Dimensions& d) {
  const int64_t attention = d.channels * (2 * d.query_width + 2 * d.key_width);
  const int64_t mlp = (d.gated ? 3 : 2) * d.channels * d.inner;
  return d.layers * (attention + mlp) + d.vocabulary * d.channels;
}

double training_flops_per_token(const Dimensions& d, int64_t sequence_length) {
  const auto weights = static_cast<double>(matmul_parameters(d));
  const auto width = static_cast<double>(d.query_width);
  const auto whole = static_cast<double>(sequence_length);
  const auto full_layers = static_cast<double>(d.layers - d.windowed_layers);
  // Of a row's t-th token attention needs min(t, window) products: T/2 on average without a window.
  const auto window = static_cast<double>(std::min(d.window, sequence_length));
  const double seen = d.windowed_layers > 0 ? 2 * window - window * window / whole : 0;
  return 6 * weights +
         6 * width * (full_layers * whole + static_cast<double>(d.windowed_layers) * seen);
}

double model_flops_utilisation(double flops_per_token, double tokens_per_second, double peak_flops,
                               int64_t num_devices) {
  return flops_per_token * tokens_per_second / (peak_flops * static_cast<double>(num_devices));
}

}  // namespace skein::plan
