// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/lowercase.h"

#include "skein/text/parts/changes.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

class Lowercase final : public Normalizer {
 public:
  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    std::vector<Change> changes;
    changes.reserve(piece.text.size());
    for (size_t at = 0; at < piece.text.size();) {
      const auto character = first_character(piece.text.substr(at));
      at += character.size;
      if (character.code == 0x130) {  // the one capital that becomes two characters
        changes.insert(changes.end(), {{U'i', 1}, {0x307, 0}});
      } else {
        changes.push_back({to_lower(character.code), 1});
      }
    }
    return changed(piece, changes, workspace);
  }
};

}  // namespace

std::unique_ptr<Normalizer> read_lowercase(const PartReader&, const Json&) {
  return std::make_unique<Lowercase>();
}

}  // namespace skein::text
