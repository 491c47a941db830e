// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the losses of pairs of answers are told; free of torch. Their formulas: preference_losses.h.

#include "skein/config/syntax/choices.h"

namespace skein::algorithms {

using config::Divergence;
using config::PreferenceLoss;

struct LossOptions {
  double beta = 0.1;
  double smoothing = 0;  // ε
  double simpo_gamma = 0.5;
  double discopop_tau = 0.05;
  Divergence divergence = Divergence::kReverseKl;
  double alpha = 0.5;  // of alpha_divergence
};

}  // namespace skein::algorithms
