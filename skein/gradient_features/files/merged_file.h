// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// gradients.safetensors: all rows of a collection, by sample, written block by block.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/row_reader.h"

namespace skein::gradient_features {

class MergedFile {
 public:
  // Of all rows that `reader` is about to give.
  MergedFile(const fs::path& path, const RowReader& reader);

  // The next block, in order.
  void append(const ReadBlock& block);
  // Durable when it returns.
  void commit();

 private:
  DType dtype_;
  uint64_t next_sample_ = 0, next_row_ = 0;  // places in the file
  std::vector<std::byte> rounded_;
  NewFile file_;
};

// Its bytes.
uint64_t merged_file_bytes(const RowReader& reader);

}  // namespace skein::gradient_features
