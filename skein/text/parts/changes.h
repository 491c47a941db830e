// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is a text rewritten character by character, so that each keeps its origin?

#include <span>

#include "skein/text/parts/piece.h"

namespace skein::text {

// One character of the new text and how many of the old one it takes. Its origin is that of the
// first of them; one that takes none shares the origin of what was taken last.
struct Change {
  char32_t code = 0;
  int taken = 1;
};

// The changes take all characters of `piece`, in order.
Piece changed(const Piece& piece, std::span<const Change> changes, Workspace& workspace);

}  // namespace skein::text
