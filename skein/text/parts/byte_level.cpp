// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/byte_level.h"

#include <span>

#include "skein/text/parts/bpe_alphabet.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

Piece spelled(const Piece& piece, Workspace& workspace) {
  Rewriter rewriter(piece, workspace);
  for (size_t i = 0; i < piece.text.size(); ++i) {
    rewriter.put(byte_spelling(static_cast<uint8_t>(piece.text[i])), i);
  }
  return rewriter.finish();
}

// All into one text: one of its own for each word takes longer than to spell it.
void spell(std::span<Piece> pieces, Workspace& workspace) {
  if (workspace.tracks()) {
    for (auto& piece : pieces) piece = spelled(piece, workspace);
    return;
  }
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.text.size();
  auto& text = workspace.new_text();
  text.resize(2 * bytes);
  char* end = text.data();
  for (auto& piece : pieces) {
    char* begin = end;
    end = spell_bytes_to(piece.text, begin);
    piece.text = {begin, end};
  }
  workspace.take(static_cast<size_t>(end - text.data()));
}

class ByteLevelNormalizer final : public Normalizer {
 public:
  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    return spelled(piece, workspace);
  }
};

class ByteLevelDecoder final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (auto& token : tokens) {
      decode_inside(token);
      bytes += token;
    }
    tokens = {repaired_utf8(bytes)};
  }
  // A token that is not spelled so, as many special ones, stands for itself.
  void decode_inside(std::string& token) const override {
    if (auto bytes = unspell_bytes(token)) token = std::move(*bytes);
  }
};

}  // namespace

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

ByteLevelPreTokenizer::ByteLevelPreTokenizer(Options options) : options_(options) {
  if (options_.use_regex) gpt2_.emplace(Pattern(kGpt2Pattern));
}

void ByteLevelPreTokenizer::split(const Piece& piece, Pieces& pieces, Workspace& workspace) const {
  const bool lacks_space = options_.add_prefix_space && !piece.text.starts_with(' ');
  const auto whole = lacks_space ? with_prefix(piece, " ", workspace) : piece;
  const size_t before = pieces.size();
  if (gpt2_) {
    gpt2_->split(whole, pieces, workspace);
  } else {
    pieces.push_back(whole);
  }
  if (!spells_) return;
  spell(std::span(pieces).subspan(before), workspace);
}

std::unique_ptr<PreTokenizer> read_byte_level_pre_tokenizer(const PartReader& reader,
                                                            const Json& json) {
  return std::make_unique<ByteLevelPreTokenizer>(ByteLevelPreTokenizer::Options{
      .add_prefix_space = reader.flag(json, "add_prefix_space", true),
      .use_regex = reader.flag(json, "use_regex", true)});
}

std::unique_ptr<Normalizer> read_byte_level_normalizer(const PartReader&, const Json&) {
  return std::make_unique<ByteLevelNormalizer>();
}

std::unique_ptr<Decoder> read_byte_level_decoder(const PartReader&, const Json&) {
  return std::make_unique<ByteLevelDecoder>();
}

}  // namespace skein::text
