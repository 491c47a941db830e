// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/algorithm.h"

#include "skein/algorithms/pretrain.h"
#include "skein/core/error.h"

namespace skein::algorithms {

std::unique_ptr<Algorithm> build(config::TrainingStage stage, const model::Model& model,
                                 const LossOptions& options) {
  switch (stage) {
    case config::TrainingStage::kPretrain:
    case config::TrainingStage::kSft:  // the same loss: rows say what their targets are
      return std::make_unique<Pretrain>(model, options);
  }
  throw InternalError("a stage without an algorithm");
}

}  // namespace skein::algorithms
