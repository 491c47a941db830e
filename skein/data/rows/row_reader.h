// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where in a file does each row begin and end?
//
//   .jsonl, .json   one row per line, blank lines are skipped; or a list of rows
//
// A file is read in windows, and no more of it is in memory than one row; what a row says is not
// looked at. Safe on hostile bytes.

#include <cstdint>
#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein::data {

bool is_row_file(const fs::path& path);

struct RawRow {
  std::string json;
  uint64_t number = 0;       // from 1: the line, or the place in the list
  bool is_too_long = false;  // longer than kMaxRowBytes; `json` is empty
};

class RowReader {
 public:
  // Throws IoError when the file cannot be read or is UTF-16, or is a .json file with neither a
  // list nor lines.
  explicit RowReader(const fs::path& path) : RowReader(File::open_to_read(path), path) {}
  // A file that is open; its name says what it holds.
  RowReader(File file, fs::path path);

  // False after the last. Throws IoError "FILE:ROW: …" where a list is broken.
  bool next(RawRow& row);
  // Of the file, so far.
  uint64_t bytes_read() const { return offset_ - rest_.size(); }

 private:
  void check_first_line() const;
  bool refill();
  bool at_end() { return rest_.empty() && !refill(); }
  void skip_space();
  void extend(RawRow& row, size_t count);
  bool next_line(RawRow& row);
  bool next_of_list(RawRow& row);
  void read_value(RawRow& row);
  void end_list();
  [[noreturn]] void refuse(std::string_view why) const;

  fs::path path_;
  File file_;
  uint64_t size_ = 0, offset_ = 0;
  std::string window_;
  std::string_view rest_;  // of the window
  bool is_list_ = false;
  uint64_t number_ = 0;  // of the row before
};

}  // namespace skein::data
