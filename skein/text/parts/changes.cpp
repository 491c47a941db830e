// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/changes.h"

#include "skein/text/parts/unicode.h"

namespace skein::text {

Piece changed(const Piece& piece, std::span<const Change> changes, Workspace& workspace) {
  Rewriter rewriter(piece, workspace);
  size_t at = 0;
  for (const auto& change : changes) {
    const auto text = to_utf8(change.code);
    if (change.taken > 0) {
      rewriter.put(text, at);
    } else if (at > 0) {
      rewriter.put(text, at - 1);
    } else {
      rewriter.put_new(text);
    }
    for (int i = 0; i < change.taken; ++i) at += first_character(piece.text.substr(at)).size;
  }
  return rewriter.finish();
}

}  // namespace skein::text
