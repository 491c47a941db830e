// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Byte level: text as bytes, each spelled as one character (bpe_alphabet.h). As a step of
// normalising, of pre-tokenizing and of decoding.

#include <memory>
#include <optional>

#include "skein/text/parts/decoder.h"
#include "skein/text/parts/normalizer.h"
#include "skein/text/parts/pre_tokenizer.h"
#include "skein/text/parts/split.h"

namespace skein::text {

// The pattern of GPT-2, which the pre-tokenizer brings along.
extern const char* const kGpt2Pattern;

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  struct Options {
    bool add_prefix_space = false;  // before every piece that begins with none
    bool use_regex = true;          // split by GPT-2's pattern
  };
  explicit ByteLevelPreTokenizer(Options options);

  void split(const Piece& piece, Pieces& pieces, Workspace& workspace) const override;
  void leave_bytes() { spells_ = false; }

 private:
  Options options_;
  std::optional<Split> gpt2_;
  bool spells_ = true;
};

std::unique_ptr<PreTokenizer> read_byte_level_pre_tokenizer(const PartReader& reader,
                                                            const Json& json);
std::unique_ptr<Normalizer> read_byte_level_normalizer(const PartReader& reader, const Json& json);
std::unique_ptr<Decoder> read_byte_level_decoder(const PartReader& reader, const Json& json);

}  // namespace skein::text
