// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe.h"

#include <gtest/gtest.h>

#include "skein/core/random.h"
#include "skein/text/bpe_merges.h"
#include "skein/text/parts/bpe_alphabet.h"
#include "skein/text/parts/byte_fallback.h"

namespace skein::text {
namespace {

using Ids = std::vector<uint32_t>;

// Random numbers below `below`, the same in every run.
class Dice {
 public:
  explicit Dice(uint64_t key) : key_(key) {}
  uint32_t below(uint32_t limit) { return random::philox(key_, count_++).word[0] % limit; }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

TEST(ByteAlphabet, SpellsEveryByteAsOneCharacter) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(unspell_bytes(spell_bytes(bytes)), bytes);
  EXPECT_EQ(spell_bytes(" a\n\xC3"), "ĠaĊÃ");
}

TEST(ByteAlphabet, HasNoByteForOtherCharacters) {
  EXPECT_EQ(unspell_bytes("a b"), std::nullopt);
  EXPECT_EQ(unspell_bytes("中"), std::nullopt);
  EXPECT_EQ(unspell_bytes("\u0144"), std::nullopt);  // the first behind the alphabet
}

TEST(MergeTable, TakesTheLowestRankThenTheLeftmost) {
  const MergeTable table({{1, 2, 10}, {0, 1, 11}, {0, 0, 12}});
  Ids tokens{0, 1, 2};  // (1, 2) has the lower rank
  tokens.resize(table.merge(tokens));
  EXPECT_EQ(tokens, (Ids{0, 10}));
  tokens = {0, 0, 0};
  tokens.resize(table.merge(tokens));
  EXPECT_EQ(tokens, (Ids{12, 0}));
}

TEST(MergeTable, TheLaterMergeOfAPairHolds) {
  const MergeTable table({{0, 0, 5}, {0, 1, 6}, {0, 0, 7}});
  Ids tokens{0, 0, 1};
  tokens.resize(table.merge(tokens));
  EXPECT_EQ(tokens, (Ids{0, 6}));
}

// Ranks in any order, so that a merge may allow one of a lower rank than its own.
TEST(MergeTable, ScanAndQueueAgree) {
  Dice dice(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Merge> merges;
    for (uint32_t result = 3; result < 40; ++result) {
      merges.push_back({dice.below(result), dice.below(result), result});
    }
    for (size_t i = merges.size() - 1; i > 0; --i) std::swap(merges[i], merges[dice.below(i + 1)]);
    const MergeTable table(merges);
    Ids scanned(dice.below(MergeTable::kScanLimit + 1));
    for (auto& token : scanned) token = dice.below(3);
    Ids queued = scanned;
    scanned.resize(table.merge_by_scan(scanned));
    queued.resize(table.merge_by_queue(queued));
    EXPECT_EQ(scanned, queued) << "round " << round;
  }
}

Bpe make_bpe(BpeOptions options) {
  return Bpe({{"a", 0}, {"b", 1}, {"ab", 2}, {"ba", 3}, {"aba", 4}, {"bab", 5}},
             {{0, 1, 2}, {2, 0, 4}}, options);
}

Ids encoded(const Bpe& bpe, std::string_view word) {
  Ids ids;
  bpe.encode(word, ids);
  return ids;
}

TEST(Bpe, EncodesByMerges) {
  const auto bpe = make_bpe({});
  EXPECT_EQ(encoded(bpe, "aba"), (Ids{4}));
  EXPECT_EQ(encoded(bpe, "bab"), (Ids{1, 2}));  // in the vocabulary, yet no merge leads there
  EXPECT_EQ(encoded(bpe, ""), Ids{});
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  EXPECT_EQ(encoded(make_bpe({.ignore_merges = true}), "bab"), (Ids{5}));
}

TEST(Bpe, BytesThatAreMissing) {
  EXPECT_EQ(encoded(make_bpe({}), "axxb"), (Ids{2}));  // dropped before merging
  EXPECT_EQ(encoded(make_bpe({.unknown = 9}), "axxb"), (Ids{0, 9, 9, 1}));
  EXPECT_EQ(encoded(make_bpe({.unknown = 9, .fuse_unknown = true}), "axxb"), (Ids{0, 9, 1}));
}

// A vocabulary of random merges over `units`, with or without all bytes.
struct RandomBpe {
  StringMap<uint32_t> vocabulary;
  std::vector<Merge> merges;

  void add(const std::string& word) {
    vocabulary.emplace(word, static_cast<uint32_t>(vocabulary.size()));
  }
};

RandomBpe random_bpe(const std::vector<std::string>& units, Dice& dice) {
  RandomBpe bpe;
  std::vector<std::string> words;
  for (const auto& unit : units) bpe.add(unit);
  for (const auto& unit : units) words.push_back(unit);
  for (int i = 0; i < 120; ++i) {
    const auto left = words[dice.below(words.size())], right = words[dice.below(words.size())];
    if (left.size() + right.size() > 12) continue;
    if (!bpe.vocabulary.contains(left + right)) words.push_back(left + right);
    bpe.add(left + right);
    bpe.merges.push_back(
        {bpe.vocabulary.at(left), bpe.vocabulary.at(right), bpe.vocabulary.at(left + right)});
  }
  for (size_t i = bpe.merges.size() - 1; i > 0; --i)
    std::swap(bpe.merges[i], bpe.merges[dice.below(i + 1)]);
  return bpe;
}

void expect_the_quick_way_is_exact(const Bpe& bpe, const std::vector<std::string>& characters,
                                   Dice& dice) {
  for (int round = 0; round < 300; ++round) {
    std::string word;
    const uint32_t count = dice.below(round % 10 == 0 ? 120 : 14);
    for (uint32_t i = 0; i < count; ++i) word += characters[dice.below(characters.size())];
    Ids quick, plain, quick_lengths, plain_lengths;
    bpe.encode_plainly(word, plain, &plain_lengths);
    bpe.encode(word, quick, &quick_lengths);
    ASSERT_EQ(quick, plain) << word;
    ASSERT_EQ(quick_lengths, plain_lengths) << word;
    EXPECT_EQ(encoded(bpe, word), plain) << "remembered: " << word;
  }
}

const std::vector<std::string> kCharacters = {"a",  "b",  "c",  " ",  "é",  "中",
                                              "丮", "国", "囼", "😀", "😁", "\n"};

TEST(Bpe, CutsAndMemoryChangeNothingForCharacters) {
  Dice dice(2);
  const std::vector<std::string> known = {"a", "b", "c", " ", "é", "中", "国"};
  for (int round = 0; round < 100; ++round) {
    auto parts = random_bpe(known, dice);
    const bool falls_back = round % 2 == 0;
    for (int byte = 0; falls_back && byte < 256; ++byte)
      parts.add(byte_token(static_cast<uint8_t>(byte)));
    parts.add("<unk>");
    BpeOptions options{.unit = BpeUnit::kCharacter,
                       .fuse_unknown = round % 4 < 2,
                       .ignore_merges = round % 3 == 0,
                       .byte_fallback = falls_back};
    if (round % 5 != 0) options.unknown = parts.vocabulary.at("<unk>");
    expect_the_quick_way_is_exact(Bpe(parts.vocabulary, parts.merges, options), kCharacters, dice);
  }
}

// Merges join fragments of characters too.
TEST(Bpe, CutsAndMemoryChangeNothingForBytes) {
  Dice dice(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    std::string common;
    for (const auto& character : kCharacters) common += character;
    // Mostly of bytes that occur.
    RandomBpe parts;
    for (const auto& byte : bytes) parts.add(byte);
    std::vector<std::string> words;
    for (const char byte : common) words.emplace_back(1, byte);
    if (round % 2 == 0) words.insert(words.end(), kCharacters.begin(), kCharacters.end());
    for (const auto& character : kCharacters) {
      if (round % 2 != 0 || character.size() == 1) continue;
      for (size_t size = 2; size <= character.size(); ++size) {
        const auto left = character.substr(0, size - 1), right = character.substr(size - 1, 1);
        parts.add(left + right);
        parts.merges.push_back({parts.vocabulary.at(left), parts.vocabulary.at(right),
                                parts.vocabulary.at(left + right)});
      }
    }
    const auto own_merges = static_cast<uint32_t>(parts.merges.size());
    for (int i = 0; i < 150; ++i) {
      const auto left = words[dice.below(words.size())], right = words[dice.below(words.size())];
      if (left.size() + right.size() > 12) continue;
      parts.add(left + right);
      words.push_back(left + right);
      parts.merges.push_back({parts.vocabulary.at(left), parts.vocabulary.at(right),
                              parts.vocabulary.at(left + right)});
    }
    // Of some characters the own merges come before all others, which are then too late for parts.
    const size_t early = dice.below(own_merges + 1);
    for (size_t i = parts.merges.size() - 1; i > early; --i)
      std::swap(parts.merges[i], parts.merges[early + dice.below(i + 1 - early)]);
    const BpeOptions options{.unit = BpeUnit::kByte, .ignore_merges = round % 3 == 0};
    expect_the_quick_way_is_exact(Bpe(parts.vocabulary, parts.merges, options), kCharacters, dice);
  }
}

TEST(WordTable, FindsEqualWordsOfOneOwnerOnly) {
  WordTable<3, 8, 4> table;
  using Key = decltype(table)::Key;
  const Ids ids{1, 2, 3};
  table.put(Key("abc", 7), ids);
  EXPECT_EQ(table.find(Key("abc", 7)).count, 3);
  EXPECT_EQ(table.find(Key("abd", 7)).first, nullptr);
  EXPECT_EQ(table.find(Key("abc", 8)).first, nullptr);
  EXPECT_EQ(table.find(Key(std::string("abc\0", 4), 7)).first, nullptr);
  // Whatever shares a place, no wrong word is found.
  Dice dice(4);
  for (int i = 0; i < 20'000; ++i) {
    std::string word(dice.below(25), ' ');
    for (auto& byte : word) byte = static_cast<char>('a' + dice.below(2));
    const Key key(word, 1 + dice.below(2));
    const Ids expected{static_cast<uint32_t>(word.size()), key.owner,
                       static_cast<uint32_t>(std::hash<std::string>()(word))};
    if (const auto found = table.find(key); found.first != nullptr) {
      EXPECT_EQ(Ids(found.first, found.first + found.count), expected);
    }
    table.put(key, expected);
  }
}

}  // namespace
}  // namespace skein::text
