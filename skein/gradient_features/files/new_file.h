// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A file that appears under its name whole or not at all, written piece by piece.

#include "skein/core/file.h"

namespace skein::gradient_features {

// Written under a temporary name beside it (core/file.h), which goes when the object does without a
// commit(). It is locked: what a killed writer has left can be told from what one is writing.
class NewFile {
 public:
  explicit NewFile(fs::path path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const File& file() const { return file_; }
  const fs::path& path() const { return path_; }
  // fsync, rename, fsync of the folder. A file of this name that is there is replaced.
  void commit();

 private:
  fs::path path_, temporary_;  // empty when there is nothing left to remove
  File file_;
};

// What a killed NewFile of this path has left goes; other files stay.
void sweep_temporaries_of(const fs::path& path);

}  // namespace skein::gradient_features
