// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "skein/text/parts/byte_level.h"
#include "skein/text/parts/metaspace.h"
#include "skein/text/parts/split.h"

namespace skein::text {
namespace {

constexpr PartKind<PreTokenizer> kKinds[] = {
    {"ByteLevel", read_byte_level_pre_tokenizer},
    {"CharDelimiterSplit", read_delimiter},
    {"Digits", read_digits},
    {"Metaspace", read_metaspace_pre_tokenizer},
    {"Punctuation", read_punctuation},
    {"Split", read_split},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
};

bool is_byte_level(const std::unique_ptr<PreTokenizer>& step) {
  return dynamic_cast<const ByteLevelPreTokenizer*>(step.get()) != nullptr;
}

}  // namespace

PreTokenizers::PreTokenizers(std::vector<std::unique_ptr<PreTokenizer>> steps)
    : steps_(std::move(steps)) {}

PreTokenizers PreTokenizers::read(const PartReader& reader, const Json& json) {
  return PreTokenizers(
      read_parts<PreTokenizer>(reader, json, "pretokenizers", "pre_tokenizer", kKinds));
}

void PreTokenizers::split(const Piece& piece, Pieces& pieces, Workspace& workspace) const {
  if (piece.text.empty()) return;
  pieces.push_back(piece);
  Pieces parts;
  for (const auto& step : steps_) {
    parts.clear();
    for (const auto& part : pieces) step->split(part, parts, workspace);
    std::swap(pieces, parts);
  }
}

bool PreTokenizers::leave_bytes() {
  if (std::ranges::count_if(steps_, is_byte_level) != 1 || !is_byte_level(steps_.back())) {
    return false;
  }
  static_cast<ByteLevelPreTokenizer&>(*steps_.back()).leave_bytes();
  return true;
}

}  // namespace skein::text
