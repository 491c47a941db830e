// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One process at a time: a lock that ends with its scope, or with its process.

#include <functional>

#include "skein/core/file.h"

namespace skein::data {

class FileLock {
 public:
  // Creates the file if need be and waits for its lock; `on_wait` is called once if that takes
  // time. Throws IoError when the file cannot be opened or the file system has no locks.
  explicit FileLock(const fs::path& path, const std::function<void()>& on_wait = {});
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();  // removes the file

 private:
  bool has_name() const;

  fs::path path_;
  File file_;
};

}  // namespace skein::data
