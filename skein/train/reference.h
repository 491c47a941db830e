// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The frozen model that a policy is compared with, where it is one of its own: ref_model, or the
// weights that the run began with. It is whole on every rank, or its shard under zero3.

#include <memory>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/model/model.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/train/world.h"

namespace skein::train {

struct Reference {
  std::unique_ptr<model::Model> model;
  std::unique_ptr<parallel::Sharded> sharded;
};

// Null where no loss asks for one, or the policy without adapters is it. Collective.
std::unique_ptr<Reference> build_reference(const config::RunConfig& config,
                                           const plan::HfConfig& architecture, DType dtype,
                                           const World& world);
// `architecture`, here and above: of the run. Collective.
void load_reference(Reference& reference, const config::RunConfig& config,
                    const plan::HfConfig& architecture, const World& world);

}  // namespace skein::train
