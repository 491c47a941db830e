// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_codec.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/text/text_encoder.h"

namespace skein::text {

TextCodec TextCodec::load(const fs::path& folder) {
  TextCodec codec;
  if (fs::exists(folder / "tokenizer.json")) {
    codec.tokenizer_ = Tokenizer::load(folder);
    return codec;
  }
  for (const auto* other : {"tokenizer.model", "vocab.json"}) {
    if (!fs::exists(folder / other)) continue;
    throw UserError(fmt::format(
        "{} has a tokenizer ({}) but no tokenizer.json, the form that skein reads; save it there "
        "with transformers' AutoTokenizer",
        folder.string(), other));
  }
  return codec;
}

std::vector<int64_t> TextCodec::encode(std::string_view text) const {
  if (tokenizer_) {
    const auto ids = tokenizer_->encode(text);
    return {ids.begin(), ids.end()};
  }
  std::vector<int64_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

std::string TextCodec::bytes_of(int64_t token) const {
  if (!tokenizer_) return token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  const auto id = static_cast<uint32_t>(token);
  return tokenizer_->is_special(id) ? std::string() : std::string(tokenizer_->bytes_of(id));
}

std::optional<int64_t> TextCodec::end() const {
  if (!tokenizer_) return kByteEndOfDocument;
  return tokenizer_->eos_id();
}

}  // namespace skein::text
