// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does a part of a text come from, while a tokenizer changes and cuts it?
//
// A piece is text on its way to the model. As long as it lies in the original, its place there is
// known without a table; a step that changes it writes a new text and, when origins are asked for,
// the origin of each byte.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text {

// Bytes of the original text, always whole characters.
struct TokenSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

struct Piece {
  std::string_view text;               // valid UTF-8
  const TokenSpan* origins = nullptr;  // one for each byte; null: the text lies in the original
  size_t begin = 0;                    // without origins: where it begins in the original

  // Bytes [from, to), between characters.
  Piece slice(size_t from, size_t to) const;
  // What bytes [from, to), at least one, stand for.
  TokenSpan origin(size_t from, size_t to) const;
};
using Pieces = std::vector<Piece>;

// Owns what the steps of one call write. A file may ask for replacements that grow a text without
// end, so all that is written for a text has a limit.
class Workspace {
 public:
  enum class Origins { kIgnored, kTracked };
  Workspace(Origins origins, size_t text_bytes)
      : tracks_(origins == Origins::kTracked), room_(kMinRoom + kRoomPerByte * text_bytes) {}

  bool tracks() const { return tracks_; }
  // Counts what is written. Throws UserError when it is too much.
  void take(size_t bytes);
  std::string& new_text() { return texts_.emplace_back(); }
  std::vector<TokenSpan>& new_origins() { return origins_.emplace_back(); }

 private:
  static constexpr size_t kMinRoom = size_t{1} << 20, kRoomPerByte = 512;

  bool tracks_;
  size_t room_;
  std::deque<std::string> texts_;
  std::deque<std::vector<TokenSpan>> origins_;
};

// Writes what a step makes of a piece, from left to right.
class Rewriter {
 public:
  Rewriter(const Piece& piece, Workspace& workspace);

  // Bytes [from, to) of the piece as they are.
  void copy(size_t from, size_t to);
  // Text that stands for what byte `like` of the piece stands for.
  void put(std::string_view text, size_t like);
  // Text that stands for nothing: its place is the piece's beginning.
  void put_new(std::string_view text);

  Piece finish();

 private:
  void put(std::string_view text, TokenSpan origin);

  void append(std::string_view text);

  const Piece& piece_;
  Workspace& workspace_;
  std::string& text_;
  std::vector<TokenSpan>* origins_;  // null: not tracked
};

// `piece` with `text` in front, which shares the origin of its first character. Not empty.
Piece with_prefix(const Piece& piece, std::string_view text, Workspace& workspace);

}  // namespace skein::text
