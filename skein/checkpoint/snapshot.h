// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which of a rank's tensors does a save write, and where do they go?

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "skein/checkpoint/files/writer.h"
#include "skein/checkpoint/staging.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::checkpoint {

// What a save stores.
struct Contents {
  // Every tensor of the two file sets, whole: the same lists in the same order on all ranks. No
  // optimizer list, no optimizer files.
  std::vector<TensorEntry> model;
  std::vector<TensorEntry> optimizer;
  // What this rank writes of them. Over all ranks every element comes exactly once.
  std::vector<tensor::TensorSlice> model_slices;
  std::vector<tensor::TensorSlice> optimizer_slices;
  // Whole files by name (config.json, …); only rank 0's are written.
  std::map<std::string, std::string> texts;
  std::string stem = kModelStem;  // of the first set's files, or kAdapterStem
};

// What a save writes, planned: the slices as they lie in memory, converted where the file has
// another type, and where they go.
struct Snapshot {
  Job job;  // without pieces
  std::vector<Source> sources;
};
Snapshot plan_snapshot(const Contents& contents, uint64_t max_shard_bytes);

}  // namespace skein::checkpoint
