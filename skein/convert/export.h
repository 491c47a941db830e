// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A checkpoint, or any model folder, becomes a plain model folder: `skein export`.

#include <cstdint>
#include <optional>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/dtype.h"
#include "skein/core/file.h"

namespace skein::convert {

struct ExportOptions {
  fs::path model;  // as plan::open_weights() has found it
  fs::path out;
  std::optional<DType> dtype;  // of floating tensors; absent: as they are
  bool overwrite = false;
  uint64_t max_shard_bytes = checkpoint::kDefaultShardBytes;
};

struct ExportSummary {
  bool verified = false;  // there was a manifest
  size_t num_tensors = 0;
  size_t num_files = 0;
  uint64_t bytes = 0;
};

// Where there is a manifest, the bytes of the model are compared with it first. Throws UserError,
// IoError.
ExportSummary export_model(const ExportOptions& options);

}  // namespace skein::convert
