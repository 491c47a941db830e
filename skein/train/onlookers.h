// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Who looks at the batches of a step, or of an evaluation, before its losses are computed
// (algorithms::Pass): the policy as it is, and the reference. Without gradients.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "skein/algorithms/algorithm.h"
#include "skein/comm/group.h"
#include "skein/data/source_files.h"
#include "skein/model/model.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/batch.h"
#include "skein/train/kept_looks.h"
#include "skein/train/reference.h"

namespace skein::train {

class Onlookers {
 public:
  // All must outlive it. `reference` null: the policy without its adapters is the reference, where
  // one is asked.
  Onlookers(const algorithms::Algorithm& algorithm, const model::Model& policy,
            parallel::Sharded& sharded, Reference* reference);

  // Are there any?
  bool any() const { return !algorithm_.passes().empty(); }

  // While `work` runs they may look: what they need is whole. Outside of micro-batches. Collective.
  void while_held(const std::function<void()>& work) const;

  // What each pass gives for a micro-batch of that split. `mismatched` may be null where no pass
  // asks for it. Collective.
  using Looks = std::vector<at::Tensor>;
  Looks look(data::Split split, const tensor::Batch& own, const tensor::Batch* mismatched) const;
  // One pass over the batch that it asks for.
  at::Tensor look(size_t pass, const tensor::Batch& batch) const;
  // From here on the reference is not asked any more: this is what it would say.
  void keep(KeptLooks looks);

  // The numbers that span a step, from this rank's looks at all of its micro-batches; empty where
  // there are none. Collective; waits for the device.
  std::vector<double> settle(std::span<const Looks> looks, const tensor::Counts& counts) const;

 private:
  // Does a pass go through the model of the policy, or of the reference?
  bool uses_policy() const;
  bool uses_reference() const;
  bool is_kept(const algorithms::Pass& pass) const {
    return kept_ && pass.role == algorithms::Role::kReference;
  }
  algorithms::Runner runner(algorithms::Role role) const;

  const algorithms::Algorithm& algorithm_;
  const model::Model& policy_;
  parallel::Sharded& sharded_;
  Reference* reference_;
  std::optional<KeptLooks> kept_;
};

}  // namespace skein::train
