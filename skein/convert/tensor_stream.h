// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tensors from files into files, in pieces: memory does not grow with the model.

#include <string>
#include <vector>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/core/file.h"

namespace skein::convert {

// The tensors that LoRA has for the weight of one module.
struct LoraTensors {
  std::string module;
  const checkpoint::StoredTensor* a = nullptr;
  const checkpoint::StoredTensor* b = nullptr;
  const checkpoint::StoredTensor* magnitude = nullptr;  // of DoRA
  bool is_embedding = false;
};

// One tensor of the output. What it points to outlives it.
struct TensorJob {
  checkpoint::TensorEntry entry;                     // as it is written
  const checkpoint::StoredTensor* source = nullptr;  // of the same shape
  const LoraTensors* lora = nullptr;                 // added to it
  bool adapted = false;                              // values are not the base's alone
  double scale = 1;
  bool transposed = false;  // the weight is stored (in, out), or is an embedding
};

// Writes the files of `layout` into `folder`, synced. Values are converted and summed in fp32 and
// rounded once; what neither changes nor is converted is copied. Throws UserError for values that
// the new type cannot hold or that an adapter makes infinite or NaN, Stopped when a signal asks for
// it.
void write_tensors(const checkpoint::Layout& layout, const std::vector<TensorJob>& jobs,
                   const fs::path& folder, const std::string& what);

// Throws UserError when there is no conversion.
void check_convertible(const std::string& name, DType from, DType to);

// Of the same type and shape, with the same bytes?
bool same_tensor(const checkpoint::StoredTensor& one, const checkpoint::StoredTensor& other);

uint64_t bytes_of(const checkpoint::Layout& layout);

}  // namespace skein::convert
