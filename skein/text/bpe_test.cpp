// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe.h"

#include <gtest/gtest.h>

#include "skein/core/random.h"
#include "skein/text/bpe_merges.h"
#include "skein/text/parts/bpe_alphabet.h"

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
  table.merge(tokens);
  EXPECT_EQ(tokens, (Ids{0, 10}));
  tokens = {0, 0, 0};
  table.merge(tokens);
  EXPECT_EQ(tokens, (Ids{12, 0}));
}

TEST(MergeTable, TheLaterMergeOfAPairHolds) {
  const MergeTable table({{0, 0, 5}, {0, 1, 6}, {0, 0, 7}});
  Ids tokens{0, 0, 1};
  table.merge(tokens);
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
    Ids scanned(dice.below(200));
    for (auto& token : scanned) token = dice.below(3);
    Ids queued = scanned;
    table.merge_by_scan(scanned);
    table.merge_by_queue(queued);
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

}  // namespace
}  // namespace skein::text
