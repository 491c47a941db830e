// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From a description of RoPE to the tables that turn queries and keys.

#include <ATen/core/Tensor.h>

#include "skein/ops/rope.h"
#include "skein/plan/families/rope.h"
#include "skein/tensor/batch.h"

namespace skein::model {

// Of `positions` (T) or (B, T) in documents of `length` tokens. Frequencies are formed in fp32 by
// the operations of transformers in their order, since a float64 model too is held to its angles.
ops::RopeTable rotary_table(const plan::Rope& rope, const at::Tensor& positions, int64_t length,
                            const at::TensorOptions& options);

// Of all tokens of a batch (T, D/2), each in its own document.
ops::RopeTable rotary_table(const plan::Rope& rope, const tensor::Batch& batch,
                            const at::TensorOptions& options);

}  // namespace skein::model
