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
#include "skein/text/bpe_merges.h"

namespace skein::text {

// What the merging of a pre-token begins with.
enum class BpeUnit { kByte, kCharacter };

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

  // Appends the ids of one pre-token and, unless null, the bytes that each of them stands for.
  // Units that are dropped belong to none.
  void encode(std::string_view word, std::vector<uint32_t>& ids,
              std::vector<uint32_t>* lengths = nullptr) const;

 private:
  static constexpr uint32_t kMissing = CharacterIds::kMissing;

  void set_cuts(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges);
  bool can_cut(uint32_t left, uint32_t right) const;
  void encode_part(std::string_view word, std::vector<uint32_t>& ids,
                   std::vector<uint32_t>* lengths) const;
  template <typename Take>
  void for_each_unit(std::string_view word, Take take) const;
  bool fall_back(std::string_view unit, std::vector<uint32_t>& tokens,
                 std::vector<uint32_t>* lengths) const;
  // The tokens that merging begins with.
  void begin(std::string_view word, std::vector<uint32_t>& tokens,
             std::vector<uint32_t>* lengths) const;
  bool merges_to_itself(std::string_view word, uint32_t id) const;

  MergeTable merges_;
  BpeOptions options_;
  std::array<uint32_t, 256> byte_ids_;      // of the unit byte
  CharacterIds character_ids_;              // of the unit character
  std::array<uint32_t, 256> fallback_ids_;  // of byte_fallback
  // Between characters that no merge joins, a pre-token may be cut: the parts are the words of a
  // text that nothing else cuts, and most of them are found whole.
  bool has_cuts_ = false;
  bool all_fall_back_ = false;  // every missing character becomes bytes, which nothing merges
  PairFilter joined_;           // pairs of characters that a merge may join
  // The tokens that their own units merge to: most words of a text are found here at once.
  StringMap<uint32_t> whole_;
};

}  // namespace skein::text
