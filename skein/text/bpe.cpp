// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe.h"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "skein/text/parts/byte_fallback.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

Character character_at(std::string_view text, size_t at) {
  return first_character(text.substr(at));
}

// A long run of a script without spaces, which hardly comes again, as its parts do.
bool is_clause(std::string_view word) {
  return word.size() > decltype(WordCache::words)::kMaxBytes &&
         static_cast<uint8_t>(word.back()) >= 0x80;
}

uint32_t find(const StringMap<uint32_t>& vocabulary, std::string_view word, uint32_t otherwise) {
  const auto found = vocabulary.find(word);
  return found == vocabulary.end() ? otherwise : found->second;
}

}  // namespace

Bpe::Bpe(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges,
         BpeOptions options)
    : merges_(merges),
      options_(options),
      whole_(vocabulary.size()),
      word_owner_(WordCache::new_owner()),
      part_owner_(options.ignore_merges ? WordCache::new_owner() : word_owner_) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    byte_ids_[byte] = find(vocabulary, {&character, 1}, kMissing);
    fallback_ids_[byte] = find(vocabulary, byte_token(static_cast<uint8_t>(byte)), kMissing);
  }
  auto whole_ranks = set_characters(vocabulary, merges);
  for (const auto& [word, id] : vocabulary) {
    const bool merges_itself = merges_to_itself(word, id);
    if (options_.ignore_merges || merges_itself) whole_.add(word, id, merges_itself);
  }
  set_lengths(vocabulary);
  set_cuts(vocabulary, merges, std::move(whole_ranks));
}

// Of bytes: a character may be put together before all other merging begins where the merges that
// take it come behind those that make it, as they do where a trainer wrote them.
CharacterNumbers Bpe::set_characters(const StringMap<uint32_t>& vocabulary,
                                     const std::vector<Merge>& merges) {
  // The lowest rank of a merge that takes a token, by id.
  std::unordered_map<uint32_t, uint32_t> first_uses;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    first_uses.try_emplace(merges[rank].left, rank);
    first_uses.try_emplace(merges[rank].right, rank);
  }
  CharacterNumbers whole_ranks;
  for (const auto& [word, id] : vocabulary) {
    if (word.empty()) continue;
    const auto step = utf8_step(word);
    if (!step.is_valid || step.size != word.size()) continue;
    const char32_t code = first_character(word).code;
    if (options_.unit == BpeUnit::kByte) {
      if (!merges_to_itself(word, id)) continue;
      const auto rank = whole_rank(word);
      const auto first_use = first_uses.find(id);
      if (rank && first_use != first_uses.end() && first_use->second <= *rank) continue;
      if (rank) whole_ranks.set(code, *rank);
    }
    character_ids_.set(code, id);
  }
  return whole_ranks;
}

// The highest rank of the merges that its bytes become one token by.
std::optional<uint32_t> Bpe::whole_rank(std::string_view character) const {
  std::vector<uint32_t> tokens;
  for (const char byte : character) tokens.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  return merges_.highest_rank(tokens);
}

void Bpe::set_lengths(const StringMap<uint32_t>& vocabulary) {
  constexpr uint32_t kNone = UINT32_MAX;
  for (const auto& [word, id] : vocabulary) {
    if (id >= lengths_.size()) lengths_.resize(id + 1, kNone);
    if (lengths_[id] != kNone) return lengths_.clear();
    lengths_[id] = static_cast<uint32_t>(word.size());
  }
  for (const uint32_t id : fallback_ids_) {
    if (options_.byte_fallback && id != kMissing) lengths_[id] = 1;
  }
  if (!options_.unknown) return;
  if (*options_.unknown >= lengths_.size()) lengths_.resize(*options_.unknown + 1, kNone);
  lengths_[*options_.unknown] = 0;
}

bool Bpe::has_all_units() const {
  if (options_.unit == BpeUnit::kByte)
    return std::ranges::find(byte_ids_, kMissing) == byte_ids_.end();
  return options_.byte_fallback &&
         std::ranges::find(fallback_ids_, kMissing) == fallback_ids_.end();
}

void Bpe::set_cuts(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges,
                   CharacterNumbers whole_ranks) {
  // Two words of one id would be more than their characters say; and characters that become one
  // unknown token, or none, must stay together.
  if (lengths_.empty()) return;
  cuts_need_ids_ = !has_all_units();
  if (options_.unit == BpeUnit::kByte && cuts_need_ids_) return;
  if (cuts_need_ids_ && !options_.unknown) return;  // what is dropped brings others together
  BpeCuts::Words words;
  for (const auto& [word, id] : vocabulary) words.emplace(id, word);
  // Tokens that do not stand for their own text.
  std::unordered_set<uint32_t> others;
  if (options_.unit == BpeUnit::kCharacter) {
    others.insert(fallback_ids_.begin(), fallback_ids_.end());
    if (options_.unknown) others.insert(*options_.unknown);
  }
  for (const auto& merge : merges) {
    for (const uint32_t id : {merge.left, merge.right}) {
      if (others.contains(id) || !words.contains(id)) return;
    }
  }
  cuts_ = BpeCuts(words, merges, options_.unit, std::move(whole_ranks));
  has_cuts_ = true;
}

bool Bpe::can_cut(const BpeCuts::Place& place) const {
  return cuts_.is_cut(place) && (!cuts_need_ids_ || (character_ids_.of(place.left) != kMissing &&
                                                     character_ids_.of(place.right) != kMissing));
}

bool Bpe::merges_to_itself(std::string_view word, uint32_t id) const {
  std::vector<uint32_t> tokens;
  Out out{tokens, nullptr};
  merge(word, Beginning::kUnits, out);
  return tokens.size() == 1 && tokens[0] == id;
}

template <typename Table, typename Make>
void Bpe::remember_in(Table& table, const typename Table::Key& key, Out& out, Make make) const {
  if (const auto found = table.find(key); found.first != nullptr) {
    for (size_t i = 0; i < found.count; ++i) out.ids.push_back(found.first[i]);
    for (size_t i = 0; out.lengths != nullptr && i < found.count; ++i) {
      out.lengths->push_back(lengths_[found.first[i]]);
    }
    return;
  }
  const size_t before = out.ids.size();
  make();
  const auto made = std::span(out.ids).subspan(before);
  // Where a token stands for other bytes than usual, or a unit was dropped, it is less.
  size_t bytes = 0;
  for (const uint32_t id : made) bytes += lengths_[id];
  if (bytes == key.size) table.put(key, made);
}

template <typename Make>
void Bpe::remember(std::string_view word, uint32_t owner, Out& out, Make make) const {
  auto& cache = WordCache::of_this_thread();
  if (lengths_.empty() || word.size() > decltype(cache.long_words)::kMaxBytes) return make();
  if (word.size() <= decltype(cache.words)::kMaxBytes) {
    remember_in(cache.words, {word, owner}, out, make);
  } else {
    remember_in(cache.long_words, {word, owner}, out, make);
  }
}

void Bpe::encode(std::string_view word, std::vector<uint32_t>& ids,
                 std::vector<uint32_t>* lengths) const {
  Out out{ids, lengths};
  if (has_cuts_ && is_clause(word)) return encode_word(word, out);
  remember(word, word_owner_, out, [&] { encode_word(word, out); });
}

void Bpe::encode_word(std::string_view word, Out& out) const {
  const auto* whole = options_.ignore_merges ? whole_.find(word) : nullptr;
  if (whole != nullptr) {
    out.add(whole->id, word.size());
  } else {
    encode_parts(word, out);
  }
}

void Bpe::encode_plainly(std::string_view word, std::vector<uint32_t>& ids,
                         std::vector<uint32_t>* lengths) const {
  Out out{ids, lengths};
  const auto* whole = options_.ignore_merges ? whole_.find(word) : nullptr;
  if (whole != nullptr) {
    out.add(whole->id, word.size());
  } else {
    merge(word, Beginning::kUnits, out);
  }
}

void Bpe::encode_parts(std::string_view word, Out& out) const {
  if (!has_cuts_ || word.empty()) return encode_part(word, Beginning::kUnits, out);
  size_t done = 0;
  auto beginning = Beginning::kCharacters;
  FragmentPlaces fragments(cuts_, word);
  const auto take = [&](size_t end) {
    const auto part = word.substr(done, end - done);
    const auto make = [&] { encode_part(part, beginning, out); };
    if (part.size() == word.size() && !is_clause(word)) {
      make();  // whoever called remembers it
    } else {
      remember(part, part_owner_, out, make);
    }
    done = end;
    beginning = Beginning::kCharacters;
  };
  auto left = character_at(word, 0);
  BpeCuts::Place place{.left = left.code};
  size_t at = left.size;
  auto right = at < word.size() ? character_at(word, at) : Character{};
  while (at < word.size()) {
    const size_t next = at + right.size;
    const auto behind =
        next < word.size() ? character_at(word, next) : Character{BpeCuts::kNone, 0};
    place.right = right.code;
    place.behind = behind.code;
    const bool is_joined = fragments.are_joined(at, place.left, place.right);
    if (is_joined) beginning = Beginning::kUnbrokenCharacters;
    if (!is_joined && can_cut(place)) {
      take(at);
      place.before = BpeCuts::kNone;
    } else {
      place.before = place.left;
    }
    place.left = right.code;
    at = next;
    right = behind;
  }
  take(word.size());
}

void Bpe::encode_part(std::string_view part, Beginning beginning, Out& out) const {
  if (const auto* whole = whole_.find(part); whole != nullptr && whole->merges) {
    out.add(whole->id, part.size());
  } else {
    merge(part, beginning, out);
  }
}

void Bpe::merge(std::string_view part, Beginning beginning, Out& out) const {
  const size_t first = out.ids.size();
  const size_t first_length = out.lengths == nullptr ? 0 : out.lengths->size();
  begin(part, beginning, out);
  uint32_t* lengths = out.lengths == nullptr ? nullptr : out.lengths->data() + first_length;
  const size_t count = merges_.merge(std::span(out.ids).subspan(first), lengths);
  out.ids.resize(first + count);
  if (lengths != nullptr) out.lengths->resize(first_length + count);
}

template <typename Take>
void Bpe::for_each_byte(std::string_view bytes, Take take) const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    take(bytes.substr(i, 1), byte_ids_[static_cast<uint8_t>(bytes[i])]);
  }
}

template <typename Take>
void Bpe::for_each_unit(std::string_view word, Beginning beginning, Take take) const {
  const bool is_bytes = options_.unit == BpeUnit::kByte;
  if (is_bytes && beginning == Beginning::kUnits) return for_each_byte(word, take);
  FragmentPlaces fragments(cuts_, word);
  bool was_joined = false;
  for (size_t at = 0; at < word.size();) {
    const auto character = character_at(word, at);
    const auto unit = word.substr(at, character.size);
    const uint32_t id = character_ids_.of(character.code);
    at += character.size;
    const bool is_joined = beginning == Beginning::kUnbrokenCharacters && at < word.size() &&
                           fragments.are_joined(at, character.code, character_at(word, at).code);
    if (is_bytes && (was_joined || is_joined || id == kMissing)) {
      for_each_byte(unit, take);
    } else {
      take(unit, id);
    }
    was_joined = is_joined;
  }
}

bool Bpe::fall_back(std::string_view unit, Out& out) const {
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (!options_.byte_fallback ||
      std::ranges::any_of(unit, [&](char byte) { return id_of(byte) == kMissing; })) {
    return false;
  }
  for (const char byte : unit) out.add(id_of(byte), 1);
  return true;
}

void Bpe::begin(std::string_view word, Beginning beginning, Out& out) const {
  // Bytes of missing units whose unknown token is still to come: it waits for the next unit that is
  // known, so that it stands behind the byte tokens of what fell back in between.
  size_t unknown = 0;
  const auto add_unknown = [&] {
    if (unknown > 0) out.add(*options_.unknown, unknown);
    unknown = 0;
  };
  for_each_unit(word, beginning, [&](std::string_view unit, uint32_t id) {
    if (id != kMissing) {
      add_unknown();
      out.add(id, unit.size());
    } else if (!fall_back(unit, out) && options_.unknown) {
      if (!options_.fuse_unknown) add_unknown();
      unknown += unit.size();
    }
  });
  add_unknown();
}

}  // namespace skein::text
