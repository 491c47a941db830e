// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe.h"

namespace skein::text {

Bpe::Bpe(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges,
         BpeOptions options)
    : merges_(merges), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    const auto found = vocabulary.find(std::string_view(&character, 1));
    byte_ids_[byte] = found == vocabulary.end() ? kMissing : found->second;
  }
  whole_.reserve(vocabulary.size());
  for (const auto& [word, id] : vocabulary) {
    if (options_.ignore_merges || merges_to_itself(word, id)) whole_.emplace(word, id);
  }
}

bool Bpe::merges_to_itself(std::string_view word, uint32_t id) const {
  auto tokens = byte_tokens(word);
  merges_.merge(tokens);
  return tokens.size() == 1 && tokens[0] == id;
}

void Bpe::encode(std::string_view word, std::vector<uint32_t>& ids) const {
  if (const auto found = whole_.find(word); found != whole_.end()) {
    ids.push_back(found->second);
    return;
  }
  auto tokens = byte_tokens(word);
  merges_.merge(tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

std::vector<uint32_t> Bpe::byte_tokens(std::string_view word) const {
  std::vector<uint32_t> tokens;
  tokens.reserve(word.size());
  bool after_unknown = false;
  for (const char byte : word) {
    const uint32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    const bool is_fused = after_unknown && options_.fuse_unknown;
    after_unknown = id == kMissing;
    if (!after_unknown) {
      tokens.push_back(id);
    } else if (options_.unknown && !is_fused) {
      tokens.push_back(*options_.unknown);
    }
  }
  return tokens;
}

}  // namespace skein::text
