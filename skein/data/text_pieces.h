// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is text cut into pieces that threads encode alone?
//
//   .txt    the whole file is one document
//   .jsonl  one object per line, its "text" is one document; blank lines are skipped
//
// Each document's ids are followed by the encoder's end of document. Pieces follow from the files
// alone, never from the number of threads, and give the same ids as whole files would.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/text/text_codec.h"

namespace skein::data {

struct Piece {
  size_t file = 0;  // its place in the list of files
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_last = false;  // of its file
};

struct BadLine {
  int64_t line = 0;  // from 0, counted from the piece's start
  std::string reason;
  bool has_text = true;  // text::NoText: false
};

struct EncodedPiece {
  std::vector<uint32_t> tokens;
  int64_t documents = 0;
  int64_t lines = 0;  // line ends passed
  int64_t num_bad_lines = 0;
  std::vector<BadLine> bad_lines;  // the first few
};

// Hands out the pieces of all files in order. Not thread-safe.
class PieceCutter {
 public:
  PieceCutter(std::span<const fs::path> files, text::Cuts cuts, uint64_t piece_bytes);

  // Throws IoError when a .txt file has no place to be cut for a gigabyte.
  std::optional<Piece> next();

 private:
  uint64_t end_of_piece(uint64_t begin) const;

  std::span<const fs::path> files_;
  text::Cuts cuts_;
  uint64_t piece_bytes_;
  size_t file_ = 0;
  File open_;  // files_[file_]
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
};

// The beginning of a file, at most about so many bytes of it: whole lines of .jsonl, else whole
// characters.
Piece first_piece(const fs::path& path, uint64_t bytes);

// With kStop, ends at the first bad line: a line of a .jsonl file that is no object with a "text",
// or of a .txt file that is not UTF-8 where the encoder needs it. With kSkip, leaves it out.
EncodedPiece encode_piece(const fs::path& path, const Piece& piece, const text::TextCodec& codec,
                          config::BadLines policy);

}  // namespace skein::data
