// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A tensor as torch.save() writes it, streamed, for programs that read nothing else.
//
// The file is an uncompressed ZIP archive with a pickle of fixed form; torch.load() takes it with
// weights_only=True. It appears under its name whole or not at all. We never read such files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skein/core/dtype.h"
#include "skein/core/file.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/zip_layout.h"
#include "skein/spill/direct_file.h"

namespace skein::gradient_features {

class PtWriter {
 public:
  // One dimension or two; `dtype` is kF32 or kF16.
  PtWriter(const fs::path& path, DType dtype, const std::vector<int64_t>& shape);

  // The next elements, row-major; rounded to the type, to nearest and ties to even. Those that
  // float16 cannot hold become infinite.
  void append(std::span<const float> values);
  // Requires that all elements came. Durable when it returns.
  void commit();

 private:
  DType dtype_;
  std::string pickle_;
  ZipLayout layout_;
  uint64_t bytes_done_ = 0;  // of the elements
  uint32_t checksum_ = 0;
  std::vector<std::byte> rounded_;
  NewFile file_;
  spill::RunWriter elements_;  // last: it writes to the file
};

// Bytes of such a file, to the byte.
uint64_t pt_file_bytes(const fs::path& path, DType dtype, const std::vector<int64_t>& shape);

}  // namespace skein::gradient_features
