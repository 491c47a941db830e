// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/flops.h"

namespace skein::plan {

int64_t matmul_parameters(const ModelShape& shape) {
  const int64_t query = shape.num_heads * shape.head_dim;
  const int64_t key_value = 2 * shape.num_kv_heads * shape.head_dim;
  const int64_t attention = shape.hidden_size * (query + key_value) + query * shape.hidden_size;
  const int64_t mlp = (shape.gated_mlp ? 3 : 2) * shape.hidden_size * shape.intermediate_size;
  return shape.num_layers * (attention + mlp) + shape.vocab_size * shape.hidden_size;
}

double training_flops_per_token(const ModelShape& shape, int64_t sequence_length) {
  const auto weights = static_cast<double>(matmul_parameters(shape));
  const auto width = static_cast<double>(shape.num_heads * shape.head_dim);
  const auto layers = static_cast<double>(shape.num_layers);
  return 6 * weights + 6 * layers * width * static_cast<double>(sequence_length);
}

double model_flops_utilisation(double flops_per_token, double tokens_per_second, double peak_flops,
                               int64_t num_devices) {
  return flops_per_token * tokens_per_second / (peak_flops * static_cast<double>(num_devices));
}

}  // namespace skein::plan
