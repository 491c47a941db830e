// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/split.h"

#include <gtest/gtest.h>

#include "skein/text/parts/byte_level.h"
#include "skein/text/parts/metaspace.h"

namespace skein::text {
namespace {

using Words = std::vector<std::string>;
using Behavior = SplitBehavior;

Words words_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  Workspace workspace(Workspace::Origins::kIgnored, text.size());
  pre_tokenizer.split(Piece{text}, pieces, workspace);
  Words words;
  for (const auto& piece : pieces) words.emplace_back(piece.text);
  return words;
}

Words split_by(std::string_view pattern, std::string_view text, Split::Options options = {}) {
  return words_of(Split(Pattern(pattern), options), text);
}

Words gpt2_words(std::string_view text, bool add_prefix_space = false) {
  ByteLevelPreTokenizer step({.add_prefix_space = add_prefix_space});
  step.leave_bytes();
  return words_of(step, text);
}

TEST(Split, TreatsMatchesAsAsked) {
  constexpr const char* kText = "a--b-c";
  EXPECT_EQ(split_by("-", kText), (Words{"a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(split_by("-", kText, {Behavior::kRemoved}), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_by("-", kText, {Behavior::kContiguous}), (Words{"a", "--", "b", "-", "c"}));
  EXPECT_EQ(split_by("-", kText, {Behavior::kMergedWithPrevious}), (Words{"a-", "-", "b-", "c"}));
  EXPECT_EQ(split_by("-", kText, {Behavior::kMergedWithNext}), (Words{"a", "-", "-b", "-c"}));
  EXPECT_EQ(split_by("-", "-", {Behavior::kMergedWithNext}), (Words{"-"}));
}

TEST(Split, InvertedGapsAreTheMatches) {
  constexpr const char* kText = "a12b3";
  EXPECT_EQ(split_by("[0-9]+", kText, {Behavior::kIsolated, true}), (Words{"a", "12", "b", "3"}));
  EXPECT_EQ(split_by("[0-9]+", kText, {Behavior::kRemoved, true}), (Words{"12", "3"}));
  EXPECT_EQ(split_by("[0-9]+", kText, {Behavior::kMergedWithPrevious, true}),
            (Words{"a", "12b", "3"}));
}

TEST(Split, LiteralsAreNoPatterns) {
  EXPECT_EQ(words_of(Split(Pattern::literal("a.b")), "a.baxb"), (Words{"a.b", "axb"}));
}

TEST(ByteLevel, SplitsAsGpt2Does) {
  EXPECT_EQ(gpt2_words("It's 12 cats,\n\n  né?"),
            (Words{"It", "'s", " 12", " cats", ",", "\n\n ", " né", "?"}));
  EXPECT_EQ(gpt2_words("!\u180E!"), (Words{"!\u180E!"}));
}

TEST(ByteLevel, AddsASpaceInFront) {
  EXPECT_EQ(gpt2_words("a b", true), (Words{" a", " b"}));
  EXPECT_EQ(gpt2_words(" a", true), (Words{" a"}));
}

TEST(ByteLevel, SpellsBytes) {
  EXPECT_EQ(words_of(ByteLevelPreTokenizer({}), "a é"), (Words{"a", "ĠÃ©"}));
}

TEST(Metaspace, MarksSpaces) {
  using Prepend = MetaspaceOptions::Prepend;
  EXPECT_EQ(words_of(MetaspacePreTokenizer({}), "a  b"), (Words{"▁a", "▁", "▁b"}));
  EXPECT_EQ(words_of(MetaspacePreTokenizer({.prepend = Prepend::kNever}), "a b"),
            (Words{"a", "▁b"}));
  EXPECT_EQ(words_of(MetaspacePreTokenizer({.split = false}), "a b"), (Words{"▁a▁b"}));
  Pieces pieces;
  Workspace workspace(Workspace::Origins::kTracked, 10);
  const MetaspacePreTokenizer first({.prepend = Prepend::kFirst, .split = false});
  first.split(Piece{"a"}, pieces, workspace);
  first.split(Piece{.text = "b", .begin = 7}, pieces, workspace);
  EXPECT_EQ(pieces[0].text, "▁a");
  EXPECT_EQ(pieces[1].text, "b");
  EXPECT_EQ(pieces[0].origin(0, 3), (TokenSpan{0, 1}));
}

}  // namespace
}  // namespace skein::text
