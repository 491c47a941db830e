// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where may a pre-token be cut, so that its parts become the tokens that they are inside it?
//
// A merge across a place between two characters has a left token that ends before it and a right
// one that begins behind it. Where no merge has such tokens none will ever join the two sides, and
// each of them is merged as if it were alone. Parts are short and come again: most are remembered.

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skein/text/bpe_characters.h"
#include "skein/text/bpe_merges.h"

namespace skein::text {

// What the merging of a pre-token begins with.
enum class BpeUnit { kByte, kCharacter };

class BpeCuts {
 public:
  using Words = std::unordered_map<uint32_t, std::string_view>;  // the text of each token
  static constexpr char32_t kNone = 0x1FFFFF;

  // The two characters on each side of a place. The outer ones are kNone where there are none.
  struct Place {
    char32_t before = kNone, left = kNone, right = kNone, behind = kNone;
  };

  // Every place, until there are merges.
  BpeCuts() : BpeCuts({}, {}, BpeUnit::kCharacter) {}
  // `words` has the tokens of all merges.
  BpeCuts(const Words& words, const std::vector<Merge>& merges, BpeUnit unit);

  // Whether a text (valid UTF-8) may be cut there. Sure when it says so; it misses a few places.
  bool is_cut(const Place& place) const {
    if (place.left < kAscii && place.right < kAscii) {
      if (!ascii_[place.left * kAscii + place.right]) return true;
      // Within words there is hardly a place, and looking takes time.
      return !(is_wordy(place.left) && is_wordy(place.right)) && !joins_words(place);
    }
    return !(pairs_.may_have(place.left, place.right) && joins_words(place)) &&
           !joins_fragments(place);
  }
  // Whether a token that holds a part of one of these characters, and not the whole of it, may be
  // joined to the other one.
  bool joins_fragments(const Place& place) const {
    return has_fragments_ && (place.left >= kAscii || place.right >= kAscii) &&
           finds_fragments(place.left, place.right);
  }

 private:
  static constexpr size_t kAscii = 128;

  static bool is_wordy(char32_t c) { return (c | 0x20) - 'a' < 26 || c - '0' < 10; }
  void add_words(std::string_view left, std::string_view right);
  void add_bytes(std::string_view left, std::string_view right);
  void add_pair(uint32_t left, uint32_t right);
  bool joins_words(const Place& place) const;
  bool finds_fragments(char32_t left, char32_t right) const;

  std::bitset<kAscii * kAscii> ascii_;  // joined pairs of these characters
  PairFilter pairs_;                    // all joined pairs of characters
  PairFilter words_;                    // the same with the next character on each side
  // Of bytes: tokens that begin or end inside a character, by the byte at the place.
  bool has_fragments_ = false;
  std::bitset<256> left_bytes_, right_bytes_;
};

}  // namespace skein::text
