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

namespace skein::gradient_features {

class PtWriter {
 public:
  // One dimension or two; `dtype` is kF32 or kF16.
  PtWriter(const fs::path& path, DType dtype, std::vector<int64_t> shape);

  // The next elements, row-major; rounded to the type, to nearest and ties to even. Throws
  // UserError when float16 cannot hold one.
  void append(std::span<const float> values);
  // Requires that all elements came. Durable when it returns.
  void commit();

 private:
  void write_entry(const std::string& name, std::span<const std::byte> content);
  void finish_data();

  struct Entry {
    std::string name;
    uint64_t begin = 0;  // of its local header
    uint64_t size = 0;
    uint32_t checksum = 0;
  };

  DType dtype_;
  uint64_t elements_left_;
  NewFile file_;
  std::string root_;  // the folder inside the archive
  uint64_t position_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::byte> rounded_;
};

// Bytes of such a file, to the byte.
uint64_t pt_file_bytes(const fs::path& path, DType dtype, const std::vector<int64_t>& shape);

}  // namespace skein::gradient_features
