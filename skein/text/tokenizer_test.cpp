// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/core/random.h"
#include "skein/text/bpe_trainer.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

using Ids = std::vector<uint32_t>;
using Json = nlohmann::json;

// 256 bytes and a few merges, as JSON to be changed.
Json small_tokenizer() {
  return Json::parse(to_tokenizer_json(
      train_bpe({{" the", 9}, {"the", 5}, {"ing", 7}, {"中", 6}}, {.vocab_size = 300})));
}

Tokenizer make_tokenizer(const Json& json) { return Tokenizer::parse(json.dump(), "test"); }

Json added(int id, const char* content) {
  return {{"id", id},        {"content", content}, {"special", false},   {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
}

// What a text is cut into, as spellings.
std::vector<std::string> spellings(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> tokens;
  for (const uint32_t id : tokenizer.encode(text)) tokens.push_back(*tokenizer.token_of(id));
  return tokens;
}

TEST(Tokenizer, EncodesAndDecodes) {
  const auto tokenizer = make_tokenizer(small_tokenizer());
  EXPECT_EQ(spellings(tokenizer, "the thing"),
            (std::vector<std::string>{"the", "Ġ", "t", "h", "ing"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("the 中 é")), "the 中 é");
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.id_of("Ġthe"), tokenizer.encode(" the").at(0));
  EXPECT_EQ(tokenizer.id_of("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(100'000), std::nullopt);
}

TEST(Tokenizer, RandomBytesComeBackAsPythonReadsThem) {
  const auto tokenizer = make_tokenizer(small_tokenizer());
  for (uint64_t round = 0; round < 500; ++round) {
    std::string text(round % 97, '\0');
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<char>(random::philox(round, i).word[0]);
    }
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), repaired_utf8(text));
  }
}

TEST(Tokenizer, PartsOfACharacterDecodeToReplacements) {
  const auto tokenizer = make_tokenizer(small_tokenizer());
  const auto ids = tokenizer.encode("é");
  ASSERT_EQ(ids.size(), 2);
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(1)), "\uFFFD");
  EXPECT_EQ(tokenizer.bytes_of(ids[0]), "\xC3");
  EXPECT_EQ(tokenizer.decode(Ids{100'000}), "");
}

TEST(Tokenizer, SpecialTokens) {
  const auto tokenizer = make_tokenizer(small_tokenizer());
  const auto ids = tokenizer.encode("the<|endoftext|>the");
  ASSERT_EQ(ids.size(), 3);
  EXPECT_EQ(ids[1], tokenizer.eos_id());
  EXPECT_TRUE(tokenizer.is_special(ids[1]));
  EXPECT_EQ(tokenizer.decode(ids), "the<|endoftext|>the");
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = true}), "thethe");
}

TEST(Tokenizer, AddedTokensHonourTheirFlags) {
  auto json = small_tokenizer();
  auto strip = added(400, "<s>"), word = added(401, "cat"), longer = added(402, "cat<s>");
  strip["lstrip"] = strip["rstrip"] = true;
  word["single_word"] = true;
  json["added_tokens"] = {strip, word, longer};
  const auto tokenizer = make_tokenizer(json);
  EXPECT_EQ(tokenizer.vocab_size(), 403);
  EXPECT_EQ(tokenizer.encode(" \u3000<s>\n "), (Ids{400}));
  EXPECT_EQ(tokenizer.encode("cat"), (Ids{401}));
  EXPECT_EQ(tokenizer.encode("cats").size(), 4);
  EXPECT_EQ(tokenizer.encode("cat<s>"), (Ids{402}));  // the longest
  EXPECT_EQ(tokenizer.encode("cat<s>cat"), (Ids{402, 401}));
}

TEST(Tokenizer, NormalisedTokensAreFoundInNormalisedText) {
  auto json = small_tokenizer();
  auto token = added(400, "e\u0301");
  json["added_tokens"] = {token};
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(make_tokenizer(json).encode("é").size(), 2);
  EXPECT_EQ(make_tokenizer(json).encode("e\u0301"), (Ids{400}));
  json["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(make_tokenizer(json).encode("é"), (Ids{400}));
  EXPECT_EQ(make_tokenizer(json).encode("e\u0301"), (Ids{400}));
}

TEST(Tokenizer, TheTemplateSurroundsAText) {
  auto json = small_tokenizer();
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0]}}})");
  const auto tokenizer = make_tokenizer(json);
  EXPECT_EQ(tokenizer.encode("the").size(), 2);
  EXPECT_EQ(tokenizer.encode("the")[0], 0);
  EXPECT_EQ(tokenizer.encode("the", {.add_special_tokens = false}).size(), 1);
}

TEST(Tokenizer, MergesInBothForms) {
  auto json = small_tokenizer();
  for (auto& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  EXPECT_EQ(make_tokenizer(json).encode(" the thing"),
            make_tokenizer(small_tokenizer()).encode(" the thing"));
}

TEST(Tokenizer, ConfigNamesTheEnd) {
  const auto names = parse_tokenizer_config(
      R"({"eos_token": {"content": "ing"}, "bos_token": "the", "pad_token": null})", "test");
  const auto tokenizer = Tokenizer::parse(small_tokenizer().dump(), "test", names);
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.id_of("ing"));
  EXPECT_EQ(tokenizer.bos_id(), tokenizer.id_of("the"));
  EXPECT_EQ(tokenizer.pad_id(), std::nullopt);
}

}  // namespace
}  // namespace skein::text
