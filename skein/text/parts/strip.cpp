// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/strip.h"

#include <utility>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  Piece normalize(const Piece& piece, Workspace&) const override {
    const size_t from = left_ ? leading_whitespace(piece.text) : 0;
    if (from == piece.text.size()) return {};
    const size_t to = piece.text.size() - (right_ ? trailing_whitespace(piece.text) : 0);
    return piece.slice(from, to);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    if (is_ascii(piece.text)) return piece;
    Rewriter rewriter(piece, workspace);
    for (size_t at = 0; at < piece.text.size();) {
      const auto character = first_character(piece.text.substr(at));
      if (!is_mark(character.code)) rewriter.copy(at, at + character.size);
      at += character.size;
    }
    return rewriter.finish();
  }
};

class StripDecoder final : public Decoder {
 public:
  struct Options {
    std::string content;  // one character
    uint32_t start = 0, stop = 0;
  };
  explicit StripDecoder(Options options) : options_(std::move(options)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) decode_inside(token);
  }
  void decode_inside(std::string& token) const override {
    std::string_view rest = token;
    for (uint32_t i = 0; i < options_.start && rest.starts_with(options_.content); ++i) {
      rest.remove_prefix(options_.content.size());
    }
    for (uint32_t i = 0; i < options_.stop && rest.ends_with(options_.content); ++i) {
      rest.remove_suffix(options_.content.size());
    }
    token = std::string(rest);
  }

 private:
  Options options_;
};

}  // namespace

std::unique_ptr<Normalizer> read_strip_normalizer(const PartReader& reader, const Json& json) {
  return std::make_unique<StripNormalizer>(reader.flag(json, "strip_left", true),
                                           reader.flag(json, "strip_right", true));
}

std::unique_ptr<Normalizer> read_strip_accents(const PartReader&, const Json&) {
  return std::make_unique<StripAccents>();
}

std::unique_ptr<Decoder> read_strip_decoder(const PartReader& reader, const Json& json) {
  constexpr uint32_t kMost = 1'000'000;
  return std::make_unique<StripDecoder>(
      StripDecoder::Options{.content = reader.character(json, "content"),
                            .start = reader.count(json, "start", kMost),
                            .stop = reader.count(json, "stop", kMost)});
}

}  // namespace skein::text
