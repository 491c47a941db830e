// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where may tokens never reach across? A text is cut into pre-tokens before its characters are
// merged.
//
// One class per kind, in a file of its own; a further one is also a line in pre_tokenizer.cpp.
// Thread-safe once built.

#include <memory>
#include <vector>

#include "skein/text/parts/part_reader.h"
#include "skein/text/parts/piece.h"

namespace skein::text {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Appends what becomes of a piece, in order; nothing that is empty.
  virtual void split(const Piece& piece, Pieces& pieces, Workspace& workspace) const = 0;
};

// The steps of a tokenizer, in order.
class PreTokenizers {
 public:
  PreTokenizers() = default;
  explicit PreTokenizers(std::vector<std::unique_ptr<PreTokenizer>> steps);
  // Null, a part, or a Sequence of them.
  static PreTokenizers read(const PartReader& reader, const Json& json);

  void split(const Piece& piece, Pieces& pieces, Workspace& workspace) const;

  // Where byte level is the last step (and there is no other one), pre-tokens need not be spelled
  // in its alphabet when the vocabulary is not: from now on they are not. Returns whether it is so.
  bool leave_bytes();

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace skein::text
