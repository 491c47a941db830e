// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The copy of a rank's state that a save writes while training goes on.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "skein/checkpoint/writer.h"
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
};

// Copies the slices to host memory, converted to the type that the file has. `buffer` holds the
// copy: it is kept by the caller, reused by the next save, and must outlive the job.
Job take_snapshot(const Contents& contents, uint64_t max_shard_bytes, at::Tensor& buffer);

}  // namespace skein::checkpoint
