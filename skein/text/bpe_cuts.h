// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where may a pre-token be cut, so that its parts become the tokens that they are inside it?
//
// A merge across a place between two characters has a left token that ends before it and a right
// one that begins behind it. Where no merge has such tokens none will ever join the two sides, and
// each of them is merged as if it were alone. Parts are short and come again: most are remembered.
//
// Of bytes, tokens may hold fragments of characters. A merge of rank m that takes a fragment of a
// character comes too late where the character's own bytes have become one token by merges of lower
// ranks: as long as it is not whole, one of these is possible and goes first. That holds unless
// another merge has broken the character before, on its other side. So places that fragments might
// join are looked at in chains: where none of a chain can be the first, none ever is.

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
  // `words` has the tokens of all merges. Of bytes: `whole_ranks` has the highest rank of the
  // merges that a character's own bytes become one token by, and no merge of a lower rank takes
  // that token; it lacks other characters.
  BpeCuts(const Words& words, const std::vector<Merge>& merges, BpeUnit unit,
          CharacterNumbers whole_ranks = {});

  // Whether no merge of whole characters joins a text (valid UTF-8) there; fragments are not looked
  // at. Sure when it says so; it misses a few places.
  bool is_cut(const Place& place) const {
    if (place.left < kAscii && place.right < kAscii) {
      if (!ascii_[place.left * kAscii + place.right]) return true;
      // Within words there is hardly a place, and looking takes time.
      return !(is_wordy(place.left) && is_wordy(place.right)) && !joins_words(place);
    }
    return !(pairs_.may_have(place.left, place.right) && joins_words(place));
  }

  // What merges of fragments, across a place between two characters, are there?
  enum class Fragments {
    kNone,
    kLate,   // only after the characters are whole, unless they were broken before
    kFirst,  // maybe before that
  };
  Fragments fragments(char32_t left, char32_t right) const {
    if (!has_fragments_ || (left < kAscii && right < kAscii)) return Fragments::kNone;
    return may_have_fragments(left, right) ? find_fragments(left, right) : Fragments::kNone;
  }

 private:
  static constexpr size_t kAscii = 128;

  static bool is_wordy(char32_t c) { return (c | 0x20) - 'a' < 26 || c - '0' < 10; }
  void add_words(std::string_view left, std::string_view right);
  void add_bytes(std::string_view left, std::string_view right, uint32_t rank);
  void add_pair(uint32_t left, uint32_t right);
  bool joins_words(const Place& place) const;
  bool may_have_fragments(char32_t left, char32_t right) const;
  Fragments find_fragments(char32_t left, char32_t right) const;

  std::bitset<kAscii * kAscii> ascii_;  // joined pairs of these characters
  PairFilter pairs_;                    // all joined pairs of characters
  PairFilter words_;                    // the same with the next character on each side
  // Of bytes: tokens that begin or end inside a character, by the byte at the place.
  bool has_fragments_ = false;
  std::bitset<256> left_bytes_, right_bytes_;
  PairRanks fragment_ranks_;  // of merges of fragments, or of one and a character
  CharacterNumbers whole_ranks_;
};

// At which places of a word do fragments of characters join? To be asked from left to right.
class FragmentPlaces {
 public:
  FragmentPlaces(const BpeCuts& cuts, std::string_view word) : cuts_(cuts), word_(word) {}

  // Of the place at byte `at`, between these two characters.
  bool are_joined(size_t at, char32_t left, char32_t right) {
    if (at >= chain_end_) {
      const auto found = cuts_.fragments(left, right);
      if (found == BpeCuts::Fragments::kNone) return false;
      look(at, right, found);
    }
    return is_joined_;
  }

 private:
  // At the chain that begins with a place, of which this was found.
  void look(size_t at, char32_t right, BpeCuts::Fragments found);

  const BpeCuts& cuts_;
  std::string_view word_;
  size_t chain_end_ = 0;  // the first place behind the chain that was looked at last
  bool is_joined_ = false;
};

}  // namespace skein::text
