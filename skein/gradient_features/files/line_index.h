// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The lines of a .jsonl file by the index of their sample, as data/rows/row_reader.h counts rows:
// lines of nothing but spaces, tabs and carriage returns do not, nor does a byte order mark.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/core/file.h"

namespace skein::gradient_features {

// The file is read once, in pieces, and kept open; 24 bytes of memory a line.
class LineIndex {
 public:
  // Throws IoError when the file cannot be read or has a line longer than 64 MiB.
  explicit LineIndex(const fs::path& path);

  int64_t count() const { return static_cast<int64_t>(lines_.size()); }
  // The bytes of a line, without its line feed.
  std::string read(int64_t index) const;
  // Its number in the file, from 1; blank lines count.
  int64_t number(int64_t index) const { return lines_[static_cast<size_t>(index)].number; }
  const fs::path& path() const { return path_; }
  // Throws UserError for a file that holds a list of rows, which are no lines.
  void require_lines() const;

 private:
  struct Line {
    uint64_t begin = 0, end = 0;
    int64_t number = 0;
  };
  void add(const Line& line, bool is_blank);

  fs::path path_;
  File file_;
  std::vector<Line> lines_;
};

}  // namespace skein::gradient_features
