// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/group_rates.h"

#include "skein/adapter/tensor_names.h"

namespace skein::train {

void set_rates(tensor::ParameterTable& table, double ratio, double peak_rate) {
  constexpr double kEmbeddingRate = 1e-6;  // PEFT's loraplus_lr_embedding
  if (ratio == 0) return;
  for (auto& parameter : table.parameters) {
    const auto ends_with = [&](const char* ending) { return parameter.name.ends_with(ending); };
    if (!parameter.trainable) continue;
    if (ends_with(adapter::kEmbeddingA) || ends_with(adapter::kEmbeddingB)) {
      parameter.rate = peak_rate > 0 ? kEmbeddingRate / peak_rate : 1;
    } else if (ends_with(adapter::kLoraB) || parameter.shape.size() == 1) {
      parameter.rate = ratio;
    }
  }
}

}  // namespace skein::train
