// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// gradients.safetensors: all rows of a collection, by sample, written block by block.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/row_reader.h"
#include "skein/spill/direct_file.h"

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
  void write_samples();

  DType dtype_;
  uint64_t next_sample_ = 0;      // place in the file
  std::vector<int64_t> samples_;  // that are not written yet
  std::vector<std::byte> rounded_;
  NewFile file_;
  std::optional<spill::RunWriter> rows_;  // last: it writes to the file
};

// Its bytes.
uint64_t merged_file_bytes(const RowReader& reader);

}  // namespace skein::gradient_features
