// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What did the weights become, and how far are they from another run's on as many ranks?

#include <string>
#include <vector>

#include "skein/comm/group.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::train {

struct TensorSums {
  std::string name;
  double sum = 0, square_sum = 0;  // of all elements, in float64
};

struct TrainedWeights {
  std::vector<tensor::TensorSlice> slices;  // this rank's shard, in host memory
  std::vector<TensorSums> tensors;          // of all ranks, in the order of the table
  std::string digest;                       // of all ranks' bytes; depends on their number
};

// A copy of all that trains; of 16-bit weights the masters, which `states` hold (the optimizer's).
// Frozen weights are left out. Collective.
TrainedWeights copy_trained(parallel::Sharded& sharded, const tensor::ParameterTable& table,
                            const parallel::Sharded::States& states);

struct WeightsDifference {
  double relative = 0;  // the largest of a tensor: |a - b| / max(|a|, |all tensors of a| / 1000)
  std::string tensor;   // whose it is; empty: all are equal
};

// Of the same parameters, under any stages. Collective.
WeightsDifference difference(const TrainedWeights& a, const TrainedWeights& b, comm::Group& group);

}  // namespace skein::train
