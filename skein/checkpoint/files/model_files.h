// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The tensor files of a model folder, opened and checked.

#include <string>
#include <unordered_map>
#include <vector>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/file.h"

namespace skein::checkpoint {

struct OpenFile {
  std::string name;
  File file;
  Header header;
};

// A tensor and the file it lies in.
struct StoredTensor {
  const OpenFile* file = nullptr;
  const PlacedTensor* tensor = nullptr;
};

struct ModelFiles {
  fs::path folder;
  std::vector<OpenFile> files;
  std::unordered_map<std::string, StoredTensor> tensors;  // points into `files`
};

// STEM.safetensors, or else the files that STEM.safetensors.index.json names. Throws UserError when
// the folder has neither, IoError when a file is not what it should be.
ModelFiles open_model_files(const fs::path& folder, const std::string& stem = kModelStem);

// Why a folder without such files is refused; where it holds a pickle, with the command that
// converts it.
std::string no_weights_message(const fs::path& folder, const std::string& stem = kModelStem);

}  // namespace skein::checkpoint
