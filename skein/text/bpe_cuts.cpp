// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_cuts.h"

#include <utility>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

// What stands in a pair for the fragments of characters that have this byte at the place; behind
// all characters.
uint32_t fragment(uint8_t byte) { return 0x200000U | byte; }
bool is_fragment(uint32_t key) { return key >= 0x200000U; }

bool is_inside_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// A character or a fragment of one, exactly: the code, or up to 3 bytes and how many they are.
uint32_t exact_fragment(uint32_t bytes, uint32_t size) { return (0x80U | size) << 24 | bytes; }
uint32_t exact_fragment(std::string_view token) {
  uint32_t bytes = 0;
  for (const char byte : token) bytes = bytes << 8 | static_cast<uint8_t>(byte);
  return exact_fragment(bytes, static_cast<uint32_t>(token.size()));
}

// The same of a character and of its beginnings or ends, the whole first.
struct Sides {
  uint32_t keys[4];
  size_t count;
};

// Two neighbours as one key. kNone beside one: the token is that character and no more.
uint64_t both(char32_t outer, char32_t inner) { return uint64_t{outer} << 21 | inner; }

// The character that a token begins with, or the fragment of one that it is. kNone: it stands at no
// beginning of a character in any text.
uint32_t first_of(std::string_view token) {
  const auto step = utf8_step(token);
  if (step.is_valid) return first_character(token).code;
  const bool is_beginning = step.size == token.size() && !is_inside_character(token[0]);
  return is_beginning ? fragment(static_cast<uint8_t>(token[0])) : BpeCuts::kNone;
}

std::string_view last_bytes(std::string_view token) {
  size_t begin = token.size() - 1;
  while (begin > 0 && is_inside_character(token[begin])) --begin;
  return token.substr(begin);
}

uint32_t last_of(std::string_view token) {
  const auto tail = last_bytes(token);
  if (is_inside_character(tail[0])) return fragment(static_cast<uint8_t>(token.back()));
  const auto step = utf8_step(tail);
  if (!step.is_valid || step.size != tail.size()) return BpeCuts::kNone;
  return first_character(tail).code;
}

uint32_t utf8_size(char32_t code) {
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  return code < 0x10000 ? 3 : 4;
}

// All bytes of a character as a number, the first one highest.
uint32_t utf8_bytes(char32_t code) {
  const auto next = [&](int shift) { return 0x80U | (code >> shift & 0x3F); };
  switch (utf8_size(code)) {
    case 1:
      return code;
    case 2:
      return (0xC0U | code >> 6) << 8 | next(0);
    case 3:
      return (0xE0U | code >> 12) << 16 | next(6) << 8 | next(0);
    default:
      return (0xF0U | code >> 18) << 24 | next(12) << 16 | next(6) << 8 | next(0);
  }
}

Sides beginnings_of(char32_t code) {
  Sides sides{{code}, utf8_size(code)};
  const uint32_t bytes = utf8_bytes(code);
  for (uint32_t size = 1; size < sides.count; ++size) {
    const auto rest = 8 * (static_cast<uint32_t>(sides.count) - size);
    sides.keys[size] = exact_fragment(bytes >> rest, size);
  }
  return sides;
}

Sides ends_of(char32_t code) {
  Sides sides{{code}, utf8_size(code)};
  const uint32_t bytes = utf8_bytes(code);
  for (uint32_t size = 1; size < sides.count; ++size) {
    sides.keys[size] = exact_fragment(bytes & ((1U << 8 * size) - 1), size);
  }
  return sides;
}

uint8_t first_byte(char32_t code) {
  if (code < 0x80) return static_cast<uint8_t>(code);
  if (code < 0x800) return static_cast<uint8_t>(0xC0 | code >> 6);
  if (code < 0x10000) return static_cast<uint8_t>(0xE0 | code >> 12);
  return static_cast<uint8_t>(0xF0 | code >> 18);
}

uint8_t last_byte(char32_t code) {
  return static_cast<uint8_t>(code < 0x80 ? code : 0x80 | (code & 0x3F));
}

}  // namespace

BpeCuts::BpeCuts(const Words& words, const std::vector<Merge>& merges, BpeUnit unit,
                 CharacterNumbers whole_ranks)
    : pairs_(merges.size()), words_(merges.size()), whole_ranks_(std::move(whole_ranks)) {
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto left = words.at(merges[rank].left), right = words.at(merges[rank].right);
    if (unit == BpeUnit::kByte) {
      add_bytes(left, right, rank);
    } else {
      add_words(left, right);
    }
  }
}

void BpeCuts::add_pair(uint32_t left, uint32_t right) {
  pairs_.add(left, right);
  if (left < kAscii && right < kAscii) ascii_.set(left * kAscii + right);
}

void BpeCuts::add_words(std::string_view left, std::string_view right) {
  const auto last = last_character(left), first = first_character(right);
  left.remove_suffix(last.size);
  right.remove_prefix(first.size);
  add_pair(last.code, first.code);
  words_.add(both(left.empty() ? kNone : last_character(left).code, last.code),
             both(right.empty() ? kNone : first_character(right).code, first.code));
}

void BpeCuts::add_bytes(std::string_view left, std::string_view right, uint32_t rank) {
  const bool is_text =
      valid_utf8_prefix(left) == left.size() && valid_utf8_prefix(right) == right.size();
  if (is_text) return add_words(left, right);
  const uint32_t before = last_of(left), behind = first_of(right);
  if (before == kNone || behind == kNone) return;
  if (is_fragment(before) || is_fragment(behind)) {
    has_fragments_ = true;
    pairs_.add(before, behind);
    if (is_fragment(before)) left_bytes_.set(before & 0xFF);
    if (is_fragment(behind)) right_bytes_.set(behind & 0xFF);
    fragment_ranks_.add(is_fragment(before) ? exact_fragment(left) : before,
                        is_fragment(behind) ? exact_fragment(right) : behind, rank);
    return;
  }
  // Characters meet, and what is broken lies further out: joined whatever stands there.
  add_pair(before, behind);
  words_.add(both(kNone, before), both(kNone, behind));
}

bool BpeCuts::joins_words(const Place& place) const {
  const uint64_t left[] = {both(kNone, place.left), both(place.before, place.left)};
  const uint64_t right[] = {both(kNone, place.right), both(place.behind, place.right)};
  return words_.may_have(left[0], right[0]) || words_.may_have(left[1], right[0]) ||
         words_.may_have(left[0], right[1]) || words_.may_have(left[1], right[1]);
}

bool BpeCuts::may_have_fragments(char32_t left, char32_t right) const {
  const uint8_t before = last_byte(left), behind = first_byte(right);
  const bool is_left = left_bytes_[before], is_right = right_bytes_[behind];
  return (is_right && pairs_.may_have(left, fragment(behind))) ||
         (is_left && pairs_.may_have(fragment(before), right)) ||
         (is_left && is_right && pairs_.may_have(fragment(before), fragment(behind)));
}

BpeCuts::Fragments BpeCuts::find_fragments(char32_t left, char32_t right) const {
  const auto ends = ends_of(left), beginnings = beginnings_of(right);
  const uint32_t left_whole = whole_ranks_.of(left), right_whole = whole_ranks_.of(right);
  auto found = Fragments::kNone;
  for (size_t i = 0; i < ends.count; ++i) {
    for (size_t j = i == 0 ? 1 : 0; j < beginnings.count; ++j) {
      const uint32_t rank = fragment_ranks_.of(ends.keys[i], beginnings.keys[j]);
      if (rank == PairRanks::kNone) continue;
      const bool is_late = (i > 0 && rank > left_whole) || (j > 0 && rank > right_whole);
      if (!is_late) return Fragments::kFirst;
      found = Fragments::kLate;
    }
  }
  return found;
}

void FragmentPlaces::look(size_t at, char32_t right, BpeCuts::Fragments found) {
  is_joined_ = false;
  chain_end_ = at;
  while (found != BpeCuts::Fragments::kNone) {
    if (found == BpeCuts::Fragments::kFirst) is_joined_ = true;
    chain_end_ += first_character(word_.substr(chain_end_)).size;
    if (chain_end_ == word_.size()) return;
    const char32_t left = right;
    right = first_character(word_.substr(chain_end_)).code;
    found = cuts_.fragments(left, right);
  }
}

}  // namespace skein::text
