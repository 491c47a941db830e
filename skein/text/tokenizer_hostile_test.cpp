// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
//
// A tokenizer.json comes from anywhere: what is broken or unknown ends in one UserError that names
// the file, never in a crash or in other ids.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/core/testing.h"
#include "skein/text/bpe_trainer.h"
#include "skein/text/tokenizer.h"

namespace skein::text {
namespace {

using HostileJson = nlohmann::json;

HostileJson whole_tokenizer() {
  return HostileJson::parse(to_tokenizer_json(train_bpe({{"the", 9}}, {.vocab_size = 300})));
}

// The message of the refusal; empty when there was none.
std::string tokenizer_refusal(std::string_view text) {
  return refusal<UserError>([&] { Tokenizer::parse(text, "dir/tokenizer.json"); });
}

using TokenizerFolder = TemporaryFolder;

TEST_F(TokenizerFolder, LinksThatLeadOutAreNotFollowed) {
  const auto outside = write("outside.json", whole_tokenizer().dump());
  write("model/tokenizer.json", whole_tokenizer().dump());
  const auto model = folder_ / "model";
  const auto is_refused = [&] {
    constexpr const char* kReason = "leads out of its folder";
    EXPECT_PRED2(contains, refusal<IoError>([&] { Tokenizer::load(model); }), kReason);
    EXPECT_PRED2(contains, refusal<IoError>([&] { digest_of_files(model, {}); }), kReason);
  };
  fs::create_symlink(outside, model / "tokenizer_config.json");
  is_refused();
  fs::remove(model / "tokenizer_config.json");
  fs::remove(model / "tokenizer.json");
  fs::create_symlink(outside, model / "tokenizer.json");
  is_refused();
  EXPECT_NO_THROW(Tokenizer::load(model / "tokenizer.json"));  // the user's own word
}

struct Change {
  const char* pointer;
  const char* value;
  const char* reason;
};

constexpr Change kChanges[] = {
    {"/model/type", R"("Unigram")", "the model 'Unigram'"},
    {"/model", "null", "object"},
    {"/model/vocab", "[]", "'vocab'"},
    {"/model/vocab/a", "-1", "token id"},
    {"/model/vocab/a", "4294967295", "token id"},
    {"/model/vocab/a", "1e300", "token id"},
    {"/model/vocab/a", R"("1")", "token id"},
    {"/model/merges", "null", "'merges'"},
    {"/model/merges", R"([["t"]])", "a merge must be"},
    {"/model/merges", R"(["t h e"])", "a merge must be"},
    {"/model/merges", R"([["", "t"]])", "empty token"},
    {"/model/merges", R"([["t", "q"]])", "'tq', which is not in the vocabulary"},
    {"/model/byte_fallback", "1", "true or false"},
    {"/model/dropout", "0.1", "'dropout'"},
    {"/model/end_of_word_suffix", R"("</w>")", "'end_of_word_suffix'"},
    {"/normalizer", R"({"type": "Precompiled"})", "the normalizer 'Precompiled'"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Nmt"}]})", "'Nmt'"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [null]})", "holds null"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "a"})", "empty"},
    {"/normalizer", R"({"type": "Prepend"})", "'prepend'"},
    {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "the pre_tokenizer 'UnicodeScripts'"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "one character"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
     "the prepend_scheme 'last'"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
        "add_prefix_space": false})",
     "disagree"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
        "pattern": {"Regex": "(a)\\1"}, "behavior": "Isolated"}, {"type": "ByteLevel"}]})",
     "which skein does not take"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
        "pattern": {"String": "a"}, "behavior": "Merged"}, {"type": "ByteLevel"}]})",
     "the behavior 'Merged'"},
    {"/decoder", R"({"type": "WordPiece"})", "the decoder 'WordPiece'"},
    {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "'start'"},
    {"/post_processor", R"({"type": "Foo"})", "the post_processor 'Foo'"},
    {"/post_processor", R"({"type": "RobertaProcessing", "cls": ["a"], "sep": ["b", 1]})", "'cls'"},
    {"/post_processor", R"({"type": "TemplateProcessing", "single": []})", "drops the text"},
    {"/post_processor", R"({"type": "RobertaProcessing", "cls": ["a", 1], "sep": ["b", 4000]})",
     "adds token 4000"},
    {"/post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a"}},
        {"Sequence": {"id": "A"}}], "special_tokens": {"a": {"ids": [4001]}}})",
     "adds token 4001"},
    {"/added_tokens", R"([{"id": 5, "content": "t"}])", "in the vocabulary"},
    {"/added_tokens", R"([{"id": 5}])", "'content'"},
    {"/added_tokens", R"([{"content": "x"}])", "token id"},
    {"/added_tokens", "7", "'added_tokens'"},
};

TEST(HostileTokenizer, IsRefusedByName) {
  for (const auto& change : kChanges) {
    auto json = whole_tokenizer();
    json[HostileJson::json_pointer(change.pointer)] = HostileJson::parse(change.value);
    const auto message = tokenizer_refusal(json.dump());
    EXPECT_TRUE(message.starts_with("dir/tokenizer.json: ")) << change.pointer << message;
    EXPECT_NE(message.find(change.reason), std::string::npos) << change.reason << "\n" << message;
  }
  EXPECT_EQ(tokenizer_refusal(whole_tokenizer().dump()), "");
}

TEST(HostileTokenizer, BrokenJson) {
  EXPECT_NE(tokenizer_refusal(""), "");
  EXPECT_NE(tokenizer_refusal("[]"), "");
  EXPECT_NE(tokenizer_refusal("{\"model\": \xFF}"), "");
  EXPECT_NE(tokenizer_refusal(std::string(100'000, '[')).find("deeper than"), std::string::npos);
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
  EXPECT_NE(tokenizer_refusal(nested).find("deeper than"), std::string::npos);
}

TEST(HostileTokenizer, EveryTruncationIsRefused) {
  const auto text = whole_tokenizer().dump();
  for (size_t size = 0; size < text.size(); size += 61) {
    EXPECT_NE(tokenizer_refusal(text.substr(0, size)), "") << size;
  }
}

// Whatever random damage does, it ends in a tokenizer or in a refusal.
TEST(HostileTokenizer, RandomDamageNeverCrashes) {
  const auto text = whole_tokenizer().dump();
  for (uint64_t round = 0; round < 300; ++round) {
    auto damaged = text;
    for (uint64_t i = 0; i <= round % 4; ++i) {
      const auto draw = random::philox(round, i);
      damaged[draw.word[0] % damaged.size()] = static_cast<char>(draw.word[1]);
    }
    try {
      Tokenizer::parse(damaged, "damaged").encode("the thing");
    } catch (const UserError&) {
    }
  }
}

TEST(HostileText, DecodersDoNotGrowATextWithoutEnd) {
  auto json = whole_tokenizer();
  const auto step = [](const char* content) {
    return HostileJson{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", content}};
  };
  auto steps = HostileJson::array();
  for (int i = 0; i < 30; ++i) steps.push_back(step("aa"));
  json["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  EXPECT_PRED2(contains, tokenizer_refusal(json.dump()), "many times longer");
  // Only the whole text grows.
  steps.insert(steps.begin(), HostileJson{{"type", "Fuse"}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  const auto tokenizer = Tokenizer::parse(json.dump(), "test");
  EXPECT_PRED2(contains, refusal<UserError>([&] { tokenizer.decode(tokenizer.encode("a")); }),
               "many times longer");
  json["decoder"] = step(std::string(65, 'a').c_str());
  EXPECT_PRED2(contains, tokenizer_refusal(json.dump()), "a Replace with a long content");
}

TEST(HostileText, ReplacementsDoNotGrowATextWithoutEnd) {
  auto json = whole_tokenizer();
  const HostileJson step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step, step}}};
  const auto tokenizer = Tokenizer::parse(json.dump(), "test");
  EXPECT_PRED2(contains, refusal<UserError>([&] { tokenizer.encode("a"); }), "hundreds of times");
  EXPECT_FALSE(tokenizer.encode("b").empty());
}

// Texts that make careless tokenizers quadratic. A quadratic step would take minutes here.
TEST(HostileText, MuchOfOneThing) {
  auto json = whole_tokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back({{"id", 400}, {"content", " "}, {"rstrip", true}});
  json["added_tokens"].push_back({{"id", 401}, {"content", "\n"}, {"lstrip", true}});
  const auto spaces = Tokenizer::parse(json.dump(), "test");
  const auto plain = Tokenizer::parse(whole_tokenizer().dump(), "test");
  for (const char* unit : {" ", "a", "the", "\u0301", "\u0301\u0316", "\xFF", "\n ", "'"}) {
    std::string text;
    while (text.size() < 1 << 18) text += unit;
    EXPECT_FALSE(spaces.encode(text).empty());
    EXPECT_FALSE(plain.encode(text).empty());
  }
}

}  // namespace
}  // namespace skein::text
