// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Text encoded with a tokenizer.json.
//
// The file is digested at once and parsed when first needed: a rank that finds its data prepared
// need not know the vocabulary's words.

#include <memory>
#include <mutex>
#include <string>

#include "skein/core/file.h"
#include "skein/text/text_encoder.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

class SubwordEncoder final : public TextEncoder {
 public:
  // `path` is a tokenizer.json or its folder. Throws UserError when it is not there; the other
  // calls do when it is broken.
  explicit SubwordEncoder(const fs::path& path);

  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string decode(std::span<const uint32_t> tokens) const override;
  // The tokenizer's eos. Throws UserError when it has none.
  uint32_t end_of_document() const override;
  int64_t vocabulary() const override;
  std::string identity() const override { return identity_; }
  // kBetweenWords for the patterns it is known to be right for.
  Cuts cuts() const override { return cuts_; }

 private:
  const Tokenizer& tokenizer() const;

  fs::path path_;
  std::string identity_;
  Cuts cuts_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<const Tokenizer> tokenizer_;
};

// Whether is_safe_cut() of skein/data/text_pieces.h holds for a tokenizer.json. Broken files:
// kNowhere.
Cuts cuts_of_tokenizer(std::string_view tokenizer_json);

}  // namespace skein::text
