// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tokens does a pre-token become? Byte pair encoding, of bytes or of characters.
//
// Thread-safe once built.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skein/text/bpe_characters.h"
#include "skein/text/bpe_cuts.h"
#include "skein/text/bpe_merges.h"
#include "skein/text/parts/word_cache.h"
#include "skein/text/parts/word_map.h"

namespace skein::text {

struct BpeOptions {
  BpeUnit unit = BpeUnit::kByte;
  // What stands for a unit that the vocabulary lacks; none: such units are dropped.
  std::optional<uint32_t> unknown = std::nullopt;
  bool fuse_unknown = false;   // one for a run of such units
  bool ignore_merges = false;  // a pre-token that is in the vocabulary is taken as it is
  bool byte_fallback = false;  // characters that it lacks become their bytes' tokens, "<0xE4>"
};

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

class Bpe {
 public:
  // `vocabulary` maps bytes (not their spelling) or text to ids, as the unit says.
  Bpe(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  // Appends the ids of one pre-token (valid UTF-8) and, unless null, the bytes that each of them
  // stands for. Units that are dropped belong to none.
  void encode(std::string_view word, std::vector<uint32_t>& ids,
              std::vector<uint32_t>* lengths = nullptr) const;
  // The same without cuts and without what was remembered: what the quick way is tested against.
  void encode_plainly(std::string_view word, std::vector<uint32_t>& ids,
                      std::vector<uint32_t>* lengths = nullptr) const;

  // Can it spell every text, or are there units that would be unknown or dropped?
  bool has_all_units() const;

 private:
  static constexpr uint32_t kMissing = CharacterNumbers::kMissing;

  // Returns BpeCuts' whole_ranks.
  CharacterNumbers set_characters(const StringMap<uint32_t>& vocabulary,
                                  const std::vector<Merge>& merges);
  std::optional<uint32_t> whole_rank(std::string_view character) const;
  void set_lengths(const StringMap<uint32_t>& vocabulary);
  void set_cuts(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges,
                CharacterNumbers whole_ranks);
  bool can_cut(const BpeCuts::Place& place) const;
  // Ids and lengths as encode() appends them.
  struct Out {
    std::vector<uint32_t>& ids;
    std::vector<uint32_t>* lengths;

    void add(uint32_t id, size_t bytes) {
      ids.push_back(id);
      if (lengths != nullptr) lengths->push_back(static_cast<uint32_t>(bytes));
    }
  };
  // What merging begins with.
  enum class Beginning {
    kUnits,
    kCharacters,         // no fragments of them are joined
    kUnbrokenCharacters  // where none are
  };
  void encode_word(std::string_view word, Out& out) const;
  void encode_parts(std::string_view word, Out& out) const;
  void encode_part(std::string_view part, Beginning beginning, Out& out) const;
  void merge(std::string_view part, Beginning beginning, Out& out) const;
  // Calls make(), which appends, unless a table knows what it appends.
  template <typename Make>
  void remember(std::string_view word, uint32_t owner, Out& out, Make make) const;
  template <typename Table, typename Make>
  void remember_in(Table& table, const typename Table::Key& key, Out& out, Make make) const;
  template <typename Take>
  void for_each_unit(std::string_view word, Beginning beginning, Take take) const;
  template <typename Take>
  void for_each_byte(std::string_view bytes, Take take) const;
  bool fall_back(std::string_view unit, Out& out) const;
  // The tokens that merging begins with.
  void begin(std::string_view word, Beginning beginning, Out& out) const;
  bool merges_to_itself(std::string_view word, uint32_t id) const;

  MergeTable merges_;
  BpeOptions options_;
  std::array<uint32_t, 256> byte_ids_;      // of the unit byte
  CharacterNumbers character_ids_;          // of bytes: of characters that merge to one token
  std::array<uint32_t, 256> fallback_ids_;  // of byte_fallback
  bool has_cuts_ = false;
  bool cuts_need_ids_ = false;  // characters that the vocabulary lacks must stay together
  BpeCuts cuts_;
  // The tokens that their own units merge to, or all of them with ignore_merges: most words of a
  // text are found here at once.
  WordMap whole_;
  // The bytes of each token; of one that stands for several lengths no more than any of them. Empty
  // where two words share an id: then nothing is remembered.
  std::vector<uint32_t> lengths_;
  uint32_t word_owner_, part_owner_;  // of what is remembered
};

}  // namespace skein::text
