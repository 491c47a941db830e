// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/parts/byte_level.h"
#include "skein/text/tokenizer.h"
#include "skein/text/train_tokenizer.h"

namespace skein::text {
namespace {

class Corpus : public TemporaryFolder {
 protected:
  TokenizerTrainSummary train(const fs::path& input, int64_t vocab_size, int threads = 1) const {
    return train_tokenizer({.inputs = {input},
                            .vocab_size = vocab_size,
                            .out = folder_ / "out",
                            .overwrite = true,
                            .special_tokens = {"<|user|>"},
                            .threads = threads});
  }
};

// Larger than a chunk of the reader, so that threads share it.
std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 5 << 20; ++i) {
    text +=
        fmt::format("Line {} of the song{}\u3000\n", i * 7919 % 10007, i % 3 == 0 ? "\n" : " 歌");
  }
  return text;
}

TEST(BpeTrainer, MergesTheMostFrequentPairThenTheLowerIds) {
  const auto trained =
      train_bpe({{"ab", 5}, {"cd", 5}, {"xy", 9}, {"rare", 1}}, {.vocab_size = 300});
  ASSERT_EQ(trained.merges.size(), 3);  // no pair of "rare" occurs twice
  EXPECT_EQ(trained.vocabulary[257], "xy");
  EXPECT_EQ(trained.vocabulary[258], "ab");
  EXPECT_EQ(trained.vocabulary[259], "cd");
}

TEST(BpeTrainer, CountsFollowTheMerges) {
  // (a, b) 9; then (ab, a) 4 and (b, a) no more.
  const auto trained = train_bpe({{"aba", 4}, {"ab", 5}, {"ba", 3}}, {.vocab_size = 300});
  EXPECT_EQ(trained.vocabulary[257], "ab");
  EXPECT_EQ(trained.vocabulary[258], "aba");
  EXPECT_EQ(trained.vocabulary[259], "ba");
  EXPECT_EQ(trained.vocabulary.size(), 260);
}

TEST(BpeTrainer, RefusesAVocabularyWithoutRoom) {
  EXPECT_THROW(train_bpe({{"a", 1}}, {.vocab_size = 256}), UserError);
  EXPECT_EQ(train_bpe({{"aa", 9}}, {.vocab_size = 257}).merges.size(), 0);
}

TEST_F(Corpus, TheNumberOfThreadsLeavesNoTrace) {
  const auto input = write("long.txt", long_text());
  train(input, 700, 1);
  const auto once = read_file(folder_ / "out/tokenizer.json");
  for (const int threads : {2, 5}) {
    train(input, 700, threads);
    EXPECT_EQ(read_file(folder_ / "out/tokenizer.json"), once) << threads << " threads";
  }
}

TEST_F(Corpus, ChunksLeaveNoTrace) {
  const auto text = long_text();
  Pieces pieces;
  Workspace workspace(Workspace::Origins::kIgnored, text.size());
  Split(Pattern(kGpt2Pattern)).split(Piece{text}, pieces, workspace);
  uint64_t counted = 0;
  for (const auto& word : count_words({write("long.txt", text)})) counted += word.count;
  EXPECT_EQ(counted, pieces.size());
}

TEST_F(Corpus, ATinyTextEndsCleanly) {
  const auto summary = train(write("tiny.txt", "to be or not to be"), 5000);
  EXPECT_LT(summary.vocab_size, 300);
  const auto tokenizer = Tokenizer::load(folder_ / "out");
  EXPECT_EQ(tokenizer.vocab_size(), summary.vocab_size);
  EXPECT_EQ(tokenizer.eos_id(), 0);
  EXPECT_EQ(tokenizer.id_of("<|user|>"), 1);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("to be<|user|>")), "to be<|user|>");
}

TEST_F(Corpus, JsonLinesAreTexts) {
  const auto words = count_words({write("a.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"b\"}\n")});
  ASSERT_EQ(words.size(), 3);
  EXPECT_EQ(words[0].bytes, " b");
  EXPECT_EQ(words[1].bytes, "a");
}

TEST_F(Corpus, ABrokenLineIsNamed) {
  const auto input = write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  EXPECT_PRED2(contains, refusal<IoError>([&] { count_words({input}); }), "a.jsonl:2: ");
}

TEST_F(Corpus, TextThatIsNoUtf8IsRefused) {
  const auto refused = [&](std::string_view bytes) {
    return refusal<IoError>([&] { train(write("a.txt", bytes), 300); });
  };
  EXPECT_PRED2(contains, refused("ab\ncd\n\xC4\xE3\xBA\xC3\n"), "a.txt:3: invalid UTF-8 at byte 1");
  EXPECT_PRED2(contains,
               refused("\xFF\xFE"
                       "a"),
               "a.txt:1: ");
  const auto second_chunk = std::string(5 << 20, '\n') + "a\x80";
  EXPECT_PRED2(contains, refused(second_chunk), "a.txt:5242881: invalid UTF-8 at byte 2 ");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(Corpus, AFolderThatHoldsATokenizerOrWeightsIsKept) {
  const auto fill = [&](const char* out) {
    train_tokenizer({.inputs = {write("a.txt", "a b c")}, .vocab_size = 300, .out = folder_ / out});
  };
  fill("new");
  EXPECT_PRED2(contains, refusal<UserError>([&] { fill("new"); }), "tokenizer.json");
  write("model/config.json", "{}");
  fill("model");
  write("weights/model.safetensors", "");
  EXPECT_PRED2(contains, refusal<UserError>([&] { fill("weights"); }), "--overwrite");
}

TEST_F(Corpus, BadInputIsRefused) {
  EXPECT_THROW(train(folder_ / "missing.txt", 300), UserError);
  EXPECT_THROW(train(write("a.csv", "a"), 300), UserError);
  EXPECT_THROW(train(write("empty.txt", ""), 300), UserError);
  EXPECT_THROW(train(write("a.txt", "a"), 100), UserError);
}

TEST_F(Corpus, AMegabyteOfSpacesIsCounted) {
  const auto words = count_words({write("spaces.txt", std::string(1 << 20, ' '))});
  ASSERT_EQ(words.size(), 1);
  EXPECT_EQ(words[0].count, (1 << 20) / kMaxWordBytes);
}

}  // namespace
}  // namespace skein::text
