// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/normalizer.h"

#include "skein/text/parts/byte_level.h"
#include "skein/text/parts/lowercase.h"
#include "skein/text/parts/normal_forms.h"
#include "skein/text/parts/prepend.h"
#include "skein/text/parts/replace.h"
#include "skein/text/parts/strip.h"

namespace skein::text {
namespace {

constexpr PartKind<Normalizer> kKinds[] = {
    {"ByteLevel", read_byte_level_normalizer},
    {"Lowercase", read_lowercase},
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Prepend", read_prepend},
    {"Replace", read_replace_normalizer},
    {"Strip", read_strip_normalizer},
    {"StripAccents", read_strip_accents},
};

}  // namespace

Normalizers Normalizers::read(const PartReader& reader, const Json& json) {
  Normalizers normalizers;
  normalizers.steps_ = read_parts<Normalizer>(reader, json, "normalizers", "normalizer", kKinds);
  return normalizers;
}

Piece Normalizers::normalize(Piece piece, Workspace& workspace) const {
  for (const auto& step : steps_) {
    if (!piece.text.empty()) piece = step->normalize(piece, workspace);
  }
  return piece;
}

std::string Normalizers::normalize(std::string_view text) const {
  Workspace workspace(Workspace::Origins::kIgnored, text.size());
  return std::string(normalize(Piece{text}, workspace).text);
}

}  // namespace skein::text
