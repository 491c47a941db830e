// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do prompts become token ids, and new tokens bytes?
//
// With the tokenizer.json of the model's folder. Without one, tokens 0-255 are the bytes and 256
// ends a document, as in training on plain text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

class TextCodec {
 public:
  // Throws UserError when the folder has a tokenizer that skein cannot read.
  static TextCodec load(const fs::path& folder);

  bool is_bytes() const { return !tokenizer_; }
  std::vector<int64_t> encode(std::string_view text) const;
  // What a token adds to the text, perhaps part of a character. Nothing for special tokens.
  std::string bytes_of(int64_t token) const;
  // The token that ends a text, where the folder's configuration names none.
  std::optional<int64_t> end() const;

 private:
  std::optional<Tokenizer> tokenizer_;  // none: bytes
};

}  // namespace skein::text
