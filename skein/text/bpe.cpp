// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe.h"

#include <algorithm>
#include <unordered_set>

#include "skein/text/parts/byte_fallback.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

Character character_at(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  return byte < 0x80 ? Character{byte, 1} : first_character(text.substr(at));
}

uint32_t find(const StringMap<uint32_t>& vocabulary, std::string_view word, uint32_t otherwise) {
  const auto found = vocabulary.find(word);
  return found == vocabulary.end() ? otherwise : found->second;
}

}  // namespace

Bpe::Bpe(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges,
         BpeOptions options)
    : merges_(merges), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    byte_ids_[byte] = find(vocabulary, {&character, 1}, kMissing);
    fallback_ids_[byte] = find(vocabulary, byte_token(static_cast<uint8_t>(byte)), kMissing);
  }
  if (options_.unit == BpeUnit::kCharacter) {
    for (const auto& [word, id] : vocabulary) {
      if (word.empty()) continue;
      const auto character = first_character(word);
      if (character.size == word.size()) character_ids_.set(character.code, id);
    }
    set_cuts(vocabulary, merges);
  }
  whole_.reserve(vocabulary.size());
  for (const auto& [word, id] : vocabulary) {
    if (options_.ignore_merges || merges_to_itself(word, id)) whole_.emplace(word, id);
  }
}

// A merge that joins two parts at a place has a left token that ends with the character before it
// and a right one that begins with the character behind it. Where no merge is so, none ever will.
void Bpe::set_cuts(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges) {
  std::unordered_map<uint32_t, std::string_view> words;
  for (const auto& [word, id] : vocabulary) words.emplace(id, word);
  // A whole pre-token, or two words of one id, would be more than their characters say.
  has_cuts_ = !options_.ignore_merges && words.size() == vocabulary.size();
  all_fall_back_ =
      options_.byte_fallback && std::ranges::find(fallback_ids_, kMissing) == fallback_ids_.end();
  std::unordered_set<uint32_t> others(fallback_ids_.begin(), fallback_ids_.end());
  if (options_.unknown) others.insert(*options_.unknown);
  for (const auto& merge : merges) {
    if (others.contains(merge.left) || others.contains(merge.right)) has_cuts_ = false;
    joined_.add(character_ids_.of(last_character(words.at(merge.left)).code),
                character_ids_.of(first_character(words.at(merge.right)).code));
  }
}

// Missing characters that become one unknown token, or none, must stay together.
bool Bpe::can_cut(uint32_t left, uint32_t right) const {
  if (left == kMissing || right == kMissing) return all_fall_back_;
  return !joined_.may_have(left, right);
}

bool Bpe::merges_to_itself(std::string_view word, uint32_t id) const {
  std::vector<uint32_t> tokens;
  begin(word, tokens, nullptr);
  merges_.merge(tokens);
  return tokens.size() == 1 && tokens[0] == id;
}

void Bpe::encode(std::string_view word, std::vector<uint32_t>& ids,
                 std::vector<uint32_t>* lengths) const {
  size_t done = 0;
  if (has_cuts_) {
    uint32_t before = kMissing;
    for (size_t at = 0; at < word.size();) {
      const auto character = character_at(word, at);
      const uint32_t id = character_ids_.of(character.code);
      if (at > done && can_cut(before, id)) {
        encode_part(word.substr(done, at - done), ids, lengths);
        done = at;
      }
      before = id;
      at += character.size;
    }
  }
  if (done < word.size()) encode_part(word.substr(done), ids, lengths);
}

void Bpe::encode_part(std::string_view word, std::vector<uint32_t>& ids,
                      std::vector<uint32_t>* lengths) const {
  if (const auto found = whole_.find(word); found != whole_.end()) {
    ids.push_back(found->second);
    if (lengths != nullptr) lengths->push_back(static_cast<uint32_t>(word.size()));
    return;
  }
  std::vector<uint32_t> tokens, token_lengths;
  auto* own_lengths = lengths == nullptr ? nullptr : &token_lengths;
  begin(word, tokens, own_lengths);
  merges_.merge(tokens, own_lengths);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (lengths != nullptr)
    lengths->insert(lengths->end(), token_lengths.begin(), token_lengths.end());
}

template <typename Take>
void Bpe::for_each_unit(std::string_view word, Take take) const {
  if (options_.unit == BpeUnit::kByte) {
    for (size_t at = 0; at < word.size(); ++at) {
      take(word.substr(at, 1), byte_ids_[static_cast<uint8_t>(word[at])]);
    }
    return;
  }
  for (size_t at = 0; at < word.size();) {
    const auto character = character_at(word, at);
    take(word.substr(at, character.size), character_ids_.of(character.code));
    at += character.size;
  }
}

bool Bpe::fall_back(std::string_view unit, std::vector<uint32_t>& tokens,
                    std::vector<uint32_t>* lengths) const {
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (!options_.byte_fallback ||
      std::ranges::any_of(unit, [&](char byte) { return id_of(byte) == kMissing; })) {
    return false;
  }
  for (const char byte : unit) tokens.push_back(id_of(byte));
  if (lengths != nullptr) lengths->insert(lengths->end(), unit.size(), 1);
  return true;
}

void Bpe::begin(std::string_view word, std::vector<uint32_t>& tokens,
                std::vector<uint32_t>* lengths) const {
  tokens.reserve(word.size());
  const auto add = [&](uint32_t id, size_t length) {
    tokens.push_back(id);
    if (lengths != nullptr) lengths->push_back(static_cast<uint32_t>(length));
  };
  // Bytes of missing units whose unknown token is still to come: it waits for the next unit that is
  // known, so that it stands behind the byte tokens of what fell back in between.
  size_t unknown = 0;
  const auto add_unknown = [&] {
    if (unknown > 0) add(*options_.unknown, unknown);
    unknown = 0;
  };
  for_each_unit(word, [&](std::string_view unit, uint32_t id) {
    if (id != kMissing) {
      add_unknown();
      add(id, unit.size());
    } else if (!fall_back(unit, tokens, lengths) && options_.unknown) {
      if (!options_.fuse_unknown) add_unknown();
      unknown += unit.size();
    }
  });
  add_unknown();
}

}  // namespace skein::text
