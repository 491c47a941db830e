// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/flops.h"

namespace skein::plan {

int64_t matmul_parameters(const Dimensions& d) {
  const int64_t attention = d.channels * (2 * d.query_width + 2 * d.key_width);
  const int64_t mlp = (d.gated ? 3 : 2) * d.channels * d.inner;
  return d.layers * (attention + mlp) + d.vocabulary * d.channels;
}

double training_flops_per_token(const Dimensions& d, int64_t sequence_length) {
  const auto weights = static_cast<double>(matmul_parameters(d));
  const auto width = static_cast<double>(d.layers * d.query_width);
  return 6 * weights + 6 * width * static_cast<double>(sequence_length);
}

double model_flops_utilisation(double flops_per_token, double tokens_per_second, double peak_flops,
                               int64_t num_devices) {
  return flops_per_token * tokens_per_second / (peak_flops * static_cast<double>(num_devices));
}

}  // namespace skein::plan
