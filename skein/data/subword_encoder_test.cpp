// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/subword_encoder.h"

#include <gtest/gtest.h>

#include <random>

#include "skein/core/error.h"
#include "skein/data/encode_files.h"
#include "skein/data/temporary_folder.h"
#include "skein/data/tokenizer_train.h"

namespace skein::data {
namespace {

class SubwordEncoderTest : public TemporaryFolder {
 protected:
  // Words, numbers, punctuation, Chinese, and white space of all kinds.
  static std::string random_text(uint32_t seed, int parts) {
    static const char* const kParts[] = {"the",    "The",    "cat",   "'s", "42", "7",
                                         ".",      ",",      "!?",    " ",  "  ", "\n",
                                         "\n\n",   "\r\n",   "\t",    " ",  " ",  "\u4e2d\u6587",
                                         "\u3002", "\u3000", "\u00e9"};
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
    return text;
  }

  void train() const {
    train_tokenizer({.inputs = {write("corpus.txt", random_text(1, 5000))},
                     .vocab_size = 300,
                     .out = folder_ / "tokenizer"});
  }
};

TEST_F(SubwordEncoderTest, PiecesGiveTheIdsOfTheWhole) {
  train();
  const SubwordEncoder encoder(folder_ / "tokenizer");
  ASSERT_EQ(encoder.cuts(), Cuts::kBetweenWords);
  const auto text = random_text(2, 20000);
  std::vector<uint32_t> whole;
  encoder.encode(text, whole);
  whole.push_back(encoder.end_of_document());
  const std::vector<fs::path> files = {write("a.txt", text)};
  for (const uint64_t piece_bytes : {1, 50, 1000}) {
    std::vector<uint32_t> ids;
    encode_files(
        files, encoder, {.threads = 3, .piece_bytes = piece_bytes},
        [&](std::span<const uint32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); });
    EXPECT_EQ(ids, whole) << piece_bytes;
  }
  EXPECT_EQ(encoder.decode(std::span(whole).first(whole.size() - 1)), text);
  EXPECT_LE(encoder.vocabulary(), 300);
}

TEST_F(SubwordEncoderTest, IdentityFollowsTheFiles) {
  train();
  const auto first = SubwordEncoder(folder_ / "tokenizer").identity();
  EXPECT_EQ(SubwordEncoder(folder_ / "tokenizer" / "tokenizer.json").identity(), first);
  write("tokenizer/tokenizer_config.json", "{}");
  EXPECT_NE(SubwordEncoder(folder_ / "tokenizer").identity(), first);
}

TEST_F(SubwordEncoderTest, UnknownSplittingIsNotCut) {
  const auto cuts = [](const std::string& rest) {
    return cuts_of_tokenizer("{\"added_tokens\": [], " + rest + "}");
  };
  const std::string byte_level = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": )";
  EXPECT_EQ(cuts(byte_level + "false}"), Cuts::kBetweenWords);
  EXPECT_EQ(cuts(byte_level + "true}"), Cuts::kNowhere);
  EXPECT_EQ(cuts(byte_level + R"(false}, "normalizer": {"type": "NFC"})"), Cuts::kBetweenWords);
  EXPECT_EQ(cuts(byte_level + R"(false}, "normalizer": {"type": "Lowercase"})"), Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": null)"), Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": []})"), Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated", "invert": false,
                     "pattern": {"Regex": "a b"}})"),
            Cuts::kNowhere);
  EXPECT_EQ(cuts_of_tokenizer("{"), Cuts::kNowhere);
  EXPECT_EQ(
      cuts_of_tokenizer(R"({"added_tokens": [{"content": "a b"}], )" + byte_level + "false}}"),
      Cuts::kNowhere);
}

TEST_F(SubwordEncoderTest, TheModelsTokenizerIsTheDefault) {
  train();
  config::ModelConfig model;
  EXPECT_EQ(make_encoder(model)->identity(), "bytes");
  model.model_name_or_path = (folder_ / "tokenizer").string();
  EXPECT_EQ(make_encoder(model)->identity().find("tokenizer "), 0u);
  model.tokenizer_name_or_path = (folder_ / "none").string();
  EXPECT_THROW(make_encoder(model), UserError);
  model = {.model_name_or_path = (folder_ / "other").string()};
  write("other/tokenizer.model", "x");
  EXPECT_THROW(make_encoder(model), UserError);
}

}  // namespace
}  // namespace skein::data
