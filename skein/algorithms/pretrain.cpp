// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/pretrain.h"

namespace skein::algorithms {

Part Pretrain::loss_sum(const tensor::Batch& batch, const StepView& step,
                        tensor::Units& units) const {
  return {model_.head_loss_sum(model_.forward(batch, step.key, units), batch, step.weight, units,
                               options_.label_smoothing)};
}

}  // namespace skein::algorithms
