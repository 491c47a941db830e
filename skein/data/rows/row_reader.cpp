// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/data/rows/row_columns.h"
#include "skein/text/jsonl.h"

namespace skein::data {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";

// Follows a value of a list byte by byte, to the comma or bracket after it.
class ValueEnd {
 public:
  // Whether `letter` no longer belongs to the value.
  bool is_after(char letter) {
    if (in_string_) {
      in_string_ = is_escaped_ || letter != '"';
      is_escaped_ = !is_escaped_ && letter == '\\';
      return false;
    }
    switch (letter) {
      case '"':
        in_string_ = true;
        return false;
      case '{':
      case '[':
        ++depth_;
        return false;
      case '}':
      case ']':
        return depth_-- == 0;
      default:
        return letter == ',' && depth_ == 0;
    }
  }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace

bool is_row_file(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

RowReader::RowReader(File file, fs::path path) : path_(std::move(path)), file_(std::move(file)) {
  size_ = file_.size();
  refill();
  text::require_utf8(rest_, path_);
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  const auto first = rest_.find_first_not_of(kSpace);
  if (first != std::string_view::npos && rest_[first] == '[') {
    rest_.remove_prefix(first + 1);
    is_list_ = true;
    return;
  }
  if (path_.extension() == ".jsonl") return;
  const bool is_empty = first == std::string_view::npos && offset_ == size_;
  if (is_empty) return;
  if (first != std::string_view::npos && rest_[first] == '{') {
    check_first_line();
    return;
  }
  throw IoError(fmt::format("{}: a .json file must hold a list of rows, or one row per line",
                            path_.string()));
}

// An object that goes on in the next line is no row: often it holds the list.
void RowReader::check_first_line() const {
  const auto begin = rest_.find('{');
  const auto end = rest_.find('\n', begin);
  if (end == std::string_view::npos) return;
  ValueEnd value;
  for (const char letter : rest_.substr(begin, end - begin)) value.is_after(letter);
  if (value.is_after(',')) return;
  throw IoError(
      fmt::format("{0}: holds one object; a list of rows is expected, or one row per line: where "
                  "its \"data\" is the list, jq '.data' {0}",
                  path_.string()));
}

bool RowReader::next(RawRow& row) {
  row.json.clear();
  row.is_too_long = false;
  return is_list_ ? next_of_list(row) : next_line(row);
}

bool RowReader::refill() {
  const uint64_t bytes = std::min(kWindowBytes, size_ - offset_);
  window_.resize(bytes);
  file_.read_at(offset_, std::as_writable_bytes(std::span(window_)));
  offset_ += bytes;
  rest_ = window_;
  return bytes > 0;
}

void RowReader::skip_space() {
  do {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size()));
  } while (rest_.empty() && refill());
}

void RowReader::extend(RawRow& row, size_t count) {
  if (row.json.size() + count > kMaxRowBytes) {
    row.is_too_long = true;
    row.json.clear();
  }
  if (!row.is_too_long) row.json += rest_.substr(0, count);
  rest_.remove_prefix(count);
}

bool RowReader::next_line(RawRow& row) {
  while (!at_end()) {
    const auto newline = rest_.find('\n');
    if (newline == std::string_view::npos) {
      extend(row, rest_.size());
      if (offset_ < size_) continue;
    } else {
      extend(row, newline);
      rest_.remove_prefix(1);
    }
    row.number = ++number_;
    if (row.is_too_long || row.json.find_first_not_of(kSpace) != std::string::npos) return true;
    row.json.clear();
  }
  return false;
}

bool RowReader::next_of_list(RawRow& row) {
  skip_space();
  if (at_end()) refuse("the file ends inside of its list; was it cut short?");
  if (rest_[0] == ']') {
    end_list();
    return false;
  }
  if (number_ > 0) {
    if (rest_[0] != ',') refuse("expected a comma after it, or the end of the list");
    rest_.remove_prefix(1);
    skip_space();
  }
  row.number = ++number_;
  read_value(row);
  return true;
}

void RowReader::read_value(RawRow& row) {
  ValueEnd end;
  while (!at_end()) {
    const auto after =
        std::ranges::find_if(rest_, [&](char letter) { return end.is_after(letter); });
    const bool is_whole = after != rest_.end();
    extend(row, static_cast<size_t>(after - rest_.begin()));
    if (!is_whole) continue;
    if (row.json.empty() && !row.is_too_long) refuse("a place of the list is empty");
    return;
  }
  refuse("the file ends inside of this row; was it cut short?");
}

// The bracket stays where it is: whoever asks again is told the same.
void RowReader::end_list() {
  auto after = rest_.substr(1);
  while (after.find_first_not_of(kSpace) == std::string_view::npos) {
    if (!refill()) {
      rest_ = "]";
      return;
    }
    after = rest_;
  }
  refuse("there is more after the end of the list");
}

void RowReader::refuse(std::string_view why) const {
  throw IoError(fmt::format("{}:{}: {}", path_.string(), std::max<uint64_t>(number_, 1), why));
}

}  // namespace skein::data
