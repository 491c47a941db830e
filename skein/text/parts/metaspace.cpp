// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/metaspace.h"

#include <utility>

#include "skein/text/parts/replace.h"

namespace skein::text {
namespace {

using Prepend = MetaspaceOptions::Prepend;

Prepend read_scheme(const PartReader& reader, const Json& json) {
  const auto& scheme = reader.at(json, "prepend_scheme");
  const bool adds = reader.flag(json, "add_prefix_space", true);  // of older files
  if (scheme.is_null()) return adds ? Prepend::kAlways : Prepend::kNever;
  const auto& name = reader.text(json, "prepend_scheme");
  if (name == "never") return Prepend::kNever;
  if (!adds) reader.refuse("'add_prefix_space' and 'prepend_scheme' of Metaspace disagree");
  if (name == "always") return Prepend::kAlways;
  if (name == "first") return Prepend::kFirst;
  reader.refuse_type("prepend_scheme", name, "always, first, never");
}

MetaspaceOptions read_options(const PartReader& reader, const Json& json) {
  return {.mark = reader.character(json, "replacement"),
          .prepend = read_scheme(reader, json),
          .split = reader.flag(json, "split", true)};
}

}  // namespace

MetaspacePreTokenizer::MetaspacePreTokenizer(MetaspaceOptions options)
    : options_(std::move(options)) {
  if (options_.split) {
    splitter_.emplace(Pattern::literal(options_.mark),
                      Split::Options{.behavior = SplitBehavior::kMergedWithNext});
  }
}

bool MetaspacePreTokenizer::lacks_mark(const Piece& piece) const {
  if (options_.prepend == Prepend::kNever || piece.text.starts_with(options_.mark)) return false;
  return options_.prepend == Prepend::kAlways || piece.origin(0, 1).begin == 0;
}

void MetaspacePreTokenizer::split(const Piece& piece, Pieces& pieces, Workspace& workspace) const {
  auto marked = replace_all(piece, Pattern::literal(" "), options_.mark, workspace);
  if (lacks_mark(marked)) marked = with_prefix(marked, options_.mark, workspace);
  if (splitter_) {
    splitter_->split(marked, pieces, workspace);
  } else {
    pieces.push_back(marked);
  }
}

void MetaspaceDecoder::decode(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool drops = i == 0 && options_.prepend != Prepend::kNever;
    tokens[i] = replace_all(tokens[i], Pattern::literal(options_.mark), drops ? "" : " ");
  }
}

void MetaspaceDecoder::decode_inside(std::string& token) const {
  token = replace_all(token, Pattern::literal(options_.mark), " ");
}

std::unique_ptr<PreTokenizer> read_metaspace_pre_tokenizer(const PartReader& reader,
                                                           const Json& json) {
  return std::make_unique<MetaspacePreTokenizer>(read_options(reader, json));
}

std::unique_ptr<Decoder> read_metaspace_decoder(const PartReader& reader, const Json& json) {
  return std::make_unique<MetaspaceDecoder>(read_options(reader, json));
}

}  // namespace skein::text
