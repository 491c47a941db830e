// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/line_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::gradient_features {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxLineBytes = uint64_t{64} << 20;
constexpr std::string_view kSpace = " \t\r";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Where the first line begins.
uint64_t begin_of(const File& file) {
  std::string first(std::min<uint64_t>(file.size(), kByteOrderMark.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  return first == kByteOrderMark ? kByteOrderMark.size() : 0;
}

}  // namespace

LineIndex::LineIndex(const fs::path& path) : path_(path), file_(File::open_to_read(path)) {
  const uint64_t size = file_.size();
  std::string piece;
  uint64_t position = begin_of(file_);
  Line line{.begin = position, .end = position, .number = 1};
  bool is_blank = true;
  while (position < size) {
    piece.resize(std::min(kPieceBytes, size - position));
    file_.read_at(position, std::as_writable_bytes(std::span(piece)));
    for (size_t at = 0; at < piece.size();) {
      const auto feed = piece.find('\n', at);
      const auto end = std::min(feed, piece.size());
      const auto part = std::string_view(piece).substr(at, end - at);
      is_blank = is_blank && part.find_first_not_of(kSpace) == std::string_view::npos;
      line.end = position + end;
      at = end + 1;
      if (feed == std::string::npos) break;
      add(line, is_blank);
      line = {.begin = position + at, .end = position + at, .number = line.number + 1};
      is_blank = true;
    }
    position += piece.size();
  }
  if (line.end > line.begin) add(line, is_blank);
}

void LineIndex::add(const Line& line, bool is_blank) {
  if (is_blank) return;
  if (line.end - line.begin > kMaxLineBytes) {
    throw IoError(fmt::format("{}:{}: a line of {} bytes, more than {}", path_.string(),
                              line.number, line.end - line.begin, kMaxLineBytes));
  }
  lines_.push_back(line);
}

void LineIndex::require_lines() const {
  if (lines_.empty()) return;
  const auto first = read(0);
  if (first[first.find_first_not_of(kSpace)] != '[') return;
  throw UserError(
      fmt::format("{0} is a list of rows, of which no line is one: make lines of it (`jq -c .[] "
                  "{0} > rows.jsonl`; the order stays)",
                  path_.string()));
}

std::string LineIndex::read(int64_t index) const {
  const auto& line = lines_.at(static_cast<size_t>(index));
  std::string text(line.end - line.begin, '\0');
  file_.read_at(line.begin, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace skein::gradient_features
