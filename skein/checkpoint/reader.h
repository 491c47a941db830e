// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Fills slices of tensors from the files of a model folder.
//
// Each slice is read with pread, exactly its range: how the files were written, or by how many
// ranks, does not matter.

#include <span>
#include <string>
#include <vector>

#include "skein/checkpoint/file_set.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/checkpoint/files/tensor_match.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::checkpoint {

class Reader {
 public:
  // `stem` is that of the files: kModelStem, …
  explicit Reader(const fs::path& folder, const std::string& stem = kModelStem);

  // Fills `data` of every slice, converting between floating types; `dtype` is not looked at.
  // Names that are missing, unexpected or of another shape come as one UserError, before anything
  // is read, and values that float16 cannot hold as another; a broken file is an IoError.
  void load(std::span<tensor::TensorSlice> slices, const LoadOptions& options = {}) const;

  // One slice of a tensor that load() has found to be there, as it would be: for tensors that are
  // read in pieces.
  void read(tensor::TensorSlice slice, bool foreign = true) const;

  const ModelFiles& files() const { return files_; }

 private:
  ModelFiles files_;
};

// Fills the slices of all sets, each from its files in the checkpoint.
void read_checkpoint(const fs::path& folder, const std::vector<FileSet>& sets);

}  // namespace skein::checkpoint
