// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/options.h"

#include "skein/core/error.h"

namespace skein::algorithms {

Options options_of(const config::RunConfig& config) {
  switch (config.stage) {
    case config::TrainingStage::kPretrain:
    case config::TrainingStage::kSft:  // the same loss: rows say what their targets are
      return PretrainOptions{.label_smoothing = config.finetune.label_smoothing_factor};
  }
  throw InternalError("a stage without an algorithm");
}

}  // namespace skein::algorithms
