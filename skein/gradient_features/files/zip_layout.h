// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do the parts of an uncompressed ZIP archive lie, and what stands around them?
//
// All sizes are known before the first byte is written: contents go to their places in any order,
// and headers, which hold checksums, when these are known.

#include <cstdint>
#include <string>
#include <vector>

namespace skein::gradient_features {

struct ZipEntry {
  std::string name;
  uint64_t size = 0;
  uint32_t checksum = 0;
  // Filled by lay_out_zip().
  uint64_t begin = 0;       // of its local header, in the file
  uint64_t data_begin = 0;  // a multiple of 64, as torch has it
};

struct ZipLayout {
  std::vector<ZipEntry> entries;
  uint64_t directory_begin = 0;  // of what follows the last entry

  uint64_t size() const;  // of the file
};

ZipLayout lay_out_zip(std::vector<ZipEntry> entries);

// What stands before an entry's content, from `begin` to `data_begin`.
std::string local_header(const ZipEntry& entry);
// What follows the last entry.
std::string directory(const ZipLayout& layout);

}  // namespace skein::gradient_features
