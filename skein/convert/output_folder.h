// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model folder that comes into being whole or not at all.
//
// Files are written into a temporary sibling, which is renamed when all is there, and removed when
// it is not.

#include <cstdint>
#include <vector>

#include "skein/core/file.h"

namespace skein::convert {

struct OutputOptions {
  fs::path folder;
  bool overwrite = false;        // a model that is there goes, if the folder holds nothing else
  std::vector<fs::path> inputs;  // must not be replaced
};

class OutputFolder {
 public:
  // Throws UserError when the folder may not be written, IoError when the disk has no room for
  // `bytes`.
  OutputFolder(OutputOptions options, uint64_t bytes);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  const fs::path& path() const { return temporary_; }  // until commit()
  void commit();

 private:
  OutputOptions options_;
  fs::path temporary_;
  bool committed_ = false;
};

}  // namespace skein::convert
