// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/pretrain.h"

#include <ATen/ops/full.h>

namespace skein::algorithms {

at::Tensor Pretrain::loss_sum(const tensor::Batch& batch, const tensor::StepKey& key, double weight,
                              tensor::Units& units) const {
  const auto hidden = model_.forward(batch, key, units);
  const auto weights =
      at::full(batch.targets.sizes(), weight, batch.targets.options().dtype(at::kDouble));
  return model_.head_loss_sum(hidden, batch.targets, weights, units);
}

}  // namespace skein::algorithms
