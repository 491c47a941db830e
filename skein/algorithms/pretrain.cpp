// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/pretrain.h"

namespace skein::algorithms {

at::Tensor Pretrain::loss_sum(const tensor::Batch& batch, const tensor::StepKey& key,
                              tensor::Units& units) const {
  const auto hidden = model_.forward(batch, key, units);
  return model_.head_loss_sum(hidden, batch.targets, /*weights=*/{}, units);
}

}  // namespace skein::algorithms
