// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/group_rates.h"

namespace skein::train {

void set_rates(tensor::ParameterTable& table, double ratio, double peak_rate) {
  constexpr double kEmbeddingRate = 1e-6;  // PEFT's loraplus_lr_embedding
  if (ratio == 0) return;
  for (auto& parameter : table.parameters) {
    const auto has = [&](const char* word) {
      return parameter.name.find(word) != std::string::npos;
    };
    if (!parameter.trainable) continue;
    if (has(".lora_embedding_")) {
      parameter.rate = peak_rate > 0 ? kEmbeddingRate / peak_rate : 1;
    } else if (has(".lora_B") || parameter.shape.size() == 1) {
      parameter.rate = ratio;
    }
  }
}

}  // namespace skein::train
