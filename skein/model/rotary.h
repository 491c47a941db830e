// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From a description of RoPE to the tables that turn queries and keys.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "skein/ops/rope.h"
#include "skein/plan/families/rope.h"
#include "skein/tensor/batch.h"

namespace skein::model {

// Of `positions` (T) or (B, T) in documents of `length` tokens. Frequencies are formed in fp32 by
// the operations of transformers in their order, since a float64 model too is held to its angles.
ops::RopeTable rotary_table(const plan::Rope& rope, const at::Tensor& positions, int64_t length,
                            const at::TensorOptions& options);

// Of `positions` (T) or (B, T) in rows of `lengths` tokens: (B, T, D/2) where they turn
// differently. Empty where turning does not depend on the length.
ops::RopeTable rotary_table(const plan::Rope& rope, const at::Tensor& positions,
                            std::span<const int64_t> lengths, const at::TensorOptions& options);

// Of all tokens of a batch, each in its own document: (T, D/2), or (B, T, D/2) where rows differ.
ops::RopeTable rotary_table(const plan::Rope& rope, const tensor::Batch& batch,
                            const at::TensorOptions& options);

}  // namespace skein::model
