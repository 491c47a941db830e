// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// First values of parameters, keyed by (seed, name, element): a shard initialises alone, and every
// split over ranks starts from the same weights.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "skein/tensor/parameter_table.h"

namespace skein::ops {

uint64_t init_key(uint64_t seed, const std::string& name);

// Fills `data` (1-D, any floating dtype, any device) with the elements [begin, begin + numel) of
// the parameter.
void initialise(const at::Tensor& data, int64_t begin, const tensor::Init& init, uint64_t key);

// The same by the parameter's own description. Of one in 4 bits `data` are bytes: its values are
// drawn and quantised piece by piece.
void initialise(const at::Tensor& data, int64_t begin, const tensor::Parameter& parameter,
                uint64_t seed);

}  // namespace skein::ops
