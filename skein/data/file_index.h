// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is in a file, without reading it again?
//
// The index remembers the digest of each file's content under what stat() says about the file:
// an unchanged file is read once. It is a text file beside the prepared data and only saves time:
// lost or damaged, it is made anew. Processes may share it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "skein/core/file.h"

namespace skein::data {

// A file's outside. Two versions of a file differ in it: nobody can set the time of the last change
// of its inode.
struct FileIdentity {
  std::string path_digest;  // of the absolute path
  uint64_t size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  uint64_t inode = 0;
  uint64_t device = 0;

  // Throws IoError when the file cannot be looked at.
  static FileIdentity of(const fs::path& path);
  auto operator<=>(const FileIdentity&) const = default;
};

struct FileFacts {
  std::string digest;
  uint64_t largest_token = 0;  // of token files

  bool operator==(const FileFacts&) const = default;
};

class FileIndex {
 public:
  // Reads the folder's index if there is one.
  explicit FileIndex(const fs::path& folder);

  std::optional<FileFacts> find(const FileIdentity& identity) const;
  // Writes all remembered facts, merged with what others wrote meanwhile. Failing to write is no
  // error: a read-only folder costs time, nothing else.
  void remember(const std::map<FileIdentity, FileFacts>& facts);

 private:
  fs::path path_;
  std::map<FileIdentity, FileFacts> facts_;
};

}  // namespace skein::data
