// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/pretrain.h"

namespace skein::algorithms {

at::Tensor Pretrain::loss_sum(const tensor::Batch& batch, const tensor::StepKey& key, double weight,
                              tensor::Units& units) const {
  return model_.head_loss_sum(model_.forward(batch, key, units), batch, weight, units,
                              options_.label_smoothing);
}

}  // namespace skein::algorithms
