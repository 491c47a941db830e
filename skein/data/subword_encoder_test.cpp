// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/subword_encoder.h"

#include <gtest/gtest.h>

#include <random>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/encode_files.h"
#include "skein/text/train_tokenizer.h"

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
    text::train_tokenizer({.inputs = {write("corpus.txt", random_text(1, 5000))},
                           .vocab_size = 300,
                           .out = folder_ / "tokenizer"});
  }
};

TEST_F(SubwordEncoderTest, PiecesGiveTheIdsOfTheWhole) {
  train();
  const text::SubwordEncoder encoder(folder_ / "tokenizer");
  ASSERT_EQ(encoder.cuts(), text::Cuts::kBetweenWords);
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
  const auto first = text::SubwordEncoder(folder_ / "tokenizer").identity();
  EXPECT_EQ(text::SubwordEncoder(folder_ / "tokenizer" / "tokenizer.json").identity(), first);
  write("tokenizer/tokenizer_config.json", "{}");
  EXPECT_NE(text::SubwordEncoder(folder_ / "tokenizer").identity(), first);
}

TEST_F(SubwordEncoderTest, UnknownSplittingIsNotCut) {
  const auto cuts = [](const std::string& rest) {
    return text::cuts_of_tokenizer("{\"added_tokens\": [], " + rest + "}");
  };
  const std::string byte_level = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": )";
  EXPECT_EQ(cuts(byte_level + "false}"), text::Cuts::kBetweenWords);
  EXPECT_EQ(cuts(byte_level + "true}"), text::Cuts::kNowhere);
  EXPECT_EQ(cuts(byte_level + R"(false}, "normalizer": {"type": "NFC"})"),
            text::Cuts::kBetweenWords);
  EXPECT_EQ(cuts(byte_level + R"(false}, "normalizer": {"type": "Lowercase"})"),
            text::Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": null)"), text::Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": []})"),
            text::Cuts::kNowhere);
  EXPECT_EQ(cuts(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated", "invert": false,
                     "pattern": {"Regex": "a b"}})"),
            text::Cuts::kNowhere);
  EXPECT_EQ(text::cuts_of_tokenizer("{"), text::Cuts::kNowhere);
  EXPECT_EQ(text::cuts_of_tokenizer(R"({"added_tokens": [{"content": "a b"}], )" + byte_level +
                                    "false}}"),
            text::Cuts::kNowhere);
}

TEST_F(SubwordEncoderTest, TheModelsTokenizerIsTheDefault) {
  train();
  config::ModelConfig model;
  EXPECT_EQ(text::make_encoder(model)->identity(), "bytes");
  model.model_name_or_path = (folder_ / "tokenizer").string();
  EXPECT_EQ(text::make_encoder(model)->identity().find("tokenizer "), 0u);
  model.tokenizer_name_or_path = (folder_ / "none").string();
  EXPECT_THROW(text::make_encoder(model), UserError);
  model = {.model_name_or_path = (folder_ / "other").string()};
  write("other/tokenizer.model", "x");
  EXPECT_THROW(text::make_encoder(model), UserError);
}

}  // namespace
}  // namespace skein::data
