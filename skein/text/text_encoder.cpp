// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_encoder.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/text/subword_encoder.h"

namespace skein::text {

void ByteEncoder::encode(std::string_view text, std::vector<uint32_t>& out) const {
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  out.insert(out.end(), first, first + text.size());
}

std::string ByteEncoder::decode(std::span<const uint32_t> tokens) const {
  std::string text;
  for (const uint32_t token : tokens) {
    if (token < 256) {
      text += static_cast<char>(token);
    } else {
      text += token == kByteEndOfDocument ? "<|end|>" : fmt::format("<|{}|>", token);
    }
  }
  return text;
}

std::unique_ptr<TextEncoder> make_encoder(const config::ModelConfig& model) {
  if (!model.tokenizer_name_or_path.empty()) {
    return std::make_unique<SubwordEncoder>(model.tokenizer_name_or_path);
  }
  const fs::path folder = model.model_name_or_path;
  std::error_code ignored;
  if (folder.empty()) return std::make_unique<ByteEncoder>();
  if (fs::exists(folder / "tokenizer.json", ignored)) {
    return std::make_unique<SubwordEncoder>(folder);
  }
  for (const auto* other : {"tokenizer.model", "vocab.json"}) {
    if (!fs::exists(folder / other, ignored)) continue;
    throw UserError(fmt::format(
        "{} has a tokenizer ({}) but no tokenizer.json, the form that skein reads; save it there "
        "with transformers' AutoTokenizer, or set tokenizer_name_or_path",
        folder.string(), other));
  }
  return std::make_unique<ByteEncoder>();
}

}  // namespace skein::text
