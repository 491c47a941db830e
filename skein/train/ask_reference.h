// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// precompute_ref_log_probs: the reference is asked about every sample before the first step, once
// for all runs over the same rows.

#include <optional>

#include "skein/config/run_config.h"
#include "skein/data/run_samples.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/trainer_state.h"
#include "skein/train/kept_looks.h"
#include "skein/train/onlookers.h"
#include "skein/train/world.h"

namespace skein::train {

struct Questions {
  const config::RunConfig& config;
  const plan::HfConfig& architecture;  // of the run
  const plan::DataIdentity& identity;  // says which reference it is
  DType dtype;                         // of the weights in forward
  const data::RunSamples& samples;
};

// What is kept of all splits; nothing where a rank lacks some of it. Collective.
std::optional<KeptLooks> find_looks(const Questions& questions, World& world);

// Asks, and keeps the answers. Throws Stopped where the ranks are asked to stop. Collective.
KeptLooks ask_reference(const Questions& questions, const algorithms::Algorithm& algorithm,
                        const Onlookers& onlookers, World& world);

}  // namespace skein::train
