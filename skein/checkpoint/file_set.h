// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tensors that are stored together: one safetensors file, or its shards and their index.

#include <string>
#include <vector>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::checkpoint {

struct FileSet {
  std::string stem = kModelStem;  // or kAdapterStem, kOptimizerStem
  std::string folder{};           // inside the checkpoint, of a second model; empty: itself
  // All of them, whole: the same list in the same order on all ranks.
  std::vector<TensorEntry> tensors{};
  // What this rank writes, or reads, of them. Over all ranks a save has every element exactly once.
  std::vector<tensor::TensorSlice> slices{};

  bool is_optimizer() const { return stem == kOptimizerStem; }
};

}  // namespace skein::checkpoint
