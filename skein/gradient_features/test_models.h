// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A tiny model whose parameters are held by a sharding, and runs of documents for it.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include <memory>
#include <string>
#include <vector>

#include "skein/comm/group.h"
#include "skein/core/hash.h"
#include "skein/model/tiny_models.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/host_batch.h"

namespace skein::gradient_features {

// Of a parameter by name, in float64: none hides behind a zero.
inline at::Tensor drawn_values(const std::string& name, at::IntArrayRef shape) {
  const auto generator = at::detail::createCPUGenerator(hash64(name));
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble)) * 0.4;
}

struct HeldModel {
  HeldModel(const plan::HfConfig& config, const plan::Tuning& tuning, int stage, bool recompute,
            comm::Group group = {}, at::ScalarType dtype = at::kDouble)
      : model(model::build(config, {.dtype = dtype, .tuning = tuning})),
        sharded(model->table(),
                {.stage = parallel::kStages[stage], .recompute = recompute, .inference = true},
                std::move(group)) {
    for (const auto& slice : sharded.kept_slices(Access::kSet)) {
      slice.data.copy_(
          drawn_values(slice.name, slice.shape).flatten().slice(0, slice.begin, slice.end));
    }
  }

  std::unique_ptr<model::Model> model;
  parallel::Sharded sharded;
};

// Documents of these lengths; of each the first targets are left out.
inline tensor::HostBatch tiny_run(const std::vector<int64_t>& lengths, int64_t seed = 0) {
  tensor::HostBatch run{.rows = 1};
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      run.tokens.push_back((seed * 31 + run.length * 7 + t * t * 3) % 17);
      const bool has_target = t >= length / 3 && t + 1 < length;
      run.targets.push_back(has_target ? (seed + t * 5 + run.length) % 17 : tensor::kIgnore);
      run.num_targets += has_target ? 1 : 0;
    }
    run.length += length;
    run.document_ends.push_back(static_cast<int32_t>(run.length));
    run.documents.push_back(std::ssize(run.documents));
  }
  return run;
}

}  // namespace skein::gradient_features
