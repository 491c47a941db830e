// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Metaspace: spaces as a visible mark ('▁'), with one in front of a text. As a step of
// pre-tokenizing and of decoding.

#include <memory>
#include <optional>
#include <string>

#include "skein/text/parts/decoder.h"
#include "skein/text/parts/pre_tokenizer.h"
#include "skein/text/parts/split.h"

namespace skein::text {

struct MetaspaceOptions {
  enum class Prepend { kAlways, kFirst, kNever };  // kFirst: where the original text begins
  std::string mark = "▁";
  Prepend prepend = Prepend::kAlways;
  bool split = true;  // before every mark
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options);

  void split(const Piece& piece, Pieces& pieces, Workspace& workspace) const override;

 private:
  bool lacks_mark(const Piece& piece) const;

  MetaspaceOptions options_;
  std::optional<Split> splitter_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(MetaspaceOptions options) : options_(std::move(options)) {}

  void decode(std::vector<std::string>& tokens) const override;
  void decode_inside(std::string& token) const override;

 private:
  MetaspaceOptions options_;
};

std::unique_ptr<PreTokenizer> read_metaspace_pre_tokenizer(const PartReader& reader,
                                                           const Json& json);
std::unique_ptr<Decoder> read_metaspace_decoder(const PartReader& reader, const Json& json);

}  // namespace skein::text
