// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
//
// Whole tokenizers made of parts, as the families use them. Equality with `tokenizers` on random
// text is shown by tests/parity/tokenizer_test.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/text/tokenizer.h"

namespace skein::text {
namespace {

using PartsJson = nlohmann::json;
using Spellings = std::vector<std::string>;

constexpr const char* kMarks = R"({"type": "Metaspace", "replacement": "▁"})";

// Characters "▁abc", "▁a", "ab" and all bytes by fallback.
PartsJson llama_tokenizer() {
  PartsJson vocab = {{"<unk>", 0}, {"<s>", 1}, {"▁", 2}, {"a", 3}, {"b", 4}, {"c", 5}};
  vocab["▁a"] = 6;
  vocab["ab"] = 7;
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 8 + byte;
  return {
      {"added_tokens", {{{"id", 1}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", PartsJson::parse(kMarks)},
      {"decoder", PartsJson::parse(R"({"type": "Sequence", "decoders": [
               {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
               {"type": "ByteFallback"}, {"type": "Fuse"},
               {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})")},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", {"▁ a", "a b"}}}}};
}

Tokenizer tokenizer_of(const PartsJson& json) { return Tokenizer::parse(json.dump(), "test"); }

Spellings tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  Spellings tokens;
  for (const uint32_t id : tokenizer.encode(text)) tokens.push_back(*tokenizer.token_of(id));
  return tokens;
}

// The text that each token stands for; both ways of encoding give the same ids.
Spellings places_of(const Tokenizer& tokenizer, std::string_view text) {
  const auto encoded = tokenizer.encode_with_offsets(text);
  EXPECT_EQ(encoded.ids, tokenizer.encode(text));
  EXPECT_EQ(encoded.ids.size(), encoded.spans.size());
  Spellings places;
  for (const auto& span : encoded.spans) {
    places.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return places;
}

TEST(TokenizerParts, ByteFallback) {
  const auto tokenizer = tokenizer_of(llama_tokenizer());
  EXPECT_EQ(tokens_of(tokenizer, "abé b"), (Spellings{"▁a", "b", "<0xC3>", "<0xA9>", "▁", "b"}));
  EXPECT_EQ(places_of(tokenizer, "abé b"), (Spellings{"a", "b", "é", "é", " ", "b"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("abé b")), "abé b");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("  a")), " a");
}

TEST(TokenizerParts, BytesThatFormNoCharacterDecodeToOneMarkEach) {
  const auto tokenizer = tokenizer_of(llama_tokenizer());
  const auto byte = *tokenizer.id_of("<0xC3>");
  EXPECT_EQ(tokenizer.decode(std::vector{byte, byte}), "\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.bytes_of(byte), "\xC3");
  EXPECT_EQ(tokenizer.bytes_of(*tokenizer.id_of("▁a")), " a");
}

TEST(TokenizerParts, UnknownTokens) {
  auto json = llama_tokenizer();
  json["model"]["vocab"].erase("<0xC3>");
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éüa"), (Spellings{"▁", "<unk>", "a"}));
  EXPECT_EQ(places_of(tokenizer_of(json), "éüa"), (Spellings{"é", "éü", "a"}));
  // An unknown token waits for what is known: bytes come before it.
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éāa"),
            (Spellings{"▁", "<0xC4>", "<0x81>", "<unk>", "a"}));
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éü"), (Spellings{"▁", "<unk>", "<unk>"}));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éa"), (Spellings{"▁a"}));
}

// `tokenizers` raises at the first text that needs it.
TEST(TokenizerParts, AnUnknownTokenThatIsNone) {
  auto json = llama_tokenizer();
  json["model"]["unk_token"] = "<none>";
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éa"), (Spellings{"▁", "<0xC3>", "<0xA9>", "a"}))
      << "there are bytes for all";
  json["model"]["vocab"].erase("<0xC3>");
  EXPECT_PRED2(contains, refusal<UserError>([&] { tokenizer_of(json); }),
               "unk_token is '<none>', which is not in the vocabulary");
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(tokens_of(tokenizer_of(json), "éa"), (Spellings{"▁a"}));
}

// Each text between special tokens is normalised by itself.
TEST(TokenizerParts, PrependAndReplaceAsInOldFiles) {
  auto json = llama_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["normalizer"] = PartsJson::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  const auto tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokens_of(tokenizer, "a<s>b a"), (Spellings{"▁a", "<s>", "▁", "b", "▁a"}));
  EXPECT_EQ(places_of(tokenizer, "a<s>b a"), (Spellings{"a", "<s>", "b", "b", " a"}));
  EXPECT_EQ(tokens_of(tokenizer, ""), Spellings{});
}

TEST(TokenizerParts, TheFirstMarkOnlyWhereTheTextBegins) {
  auto json = llama_tokenizer();
  json["pre_tokenizer"]["prepend_scheme"] = "first";
  json["pre_tokenizer"]["split"] = false;
  EXPECT_EQ(tokens_of(tokenizer_of(json), "a<s>b"), (Spellings{"▁a", "<s>", "b"}));
  // Also of a text that was changed before.
  json["normalizer"] = PartsJson::parse(R"({"type": "Lowercase"})");
  EXPECT_EQ(tokens_of(tokenizer_of(json), "A<s>B"), (Spellings{"▁a", "<s>", "b"}));
}

TEST(TokenizerParts, GemmaSplitsAtSpacesThatAreNoLongerThere) {
  auto json = llama_tokenizer();
  json["normalizer"] =
      PartsJson::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})");
  json["pre_tokenizer"] = PartsJson::parse(R"({"type": "Split", "pattern": {"String": " "},
      "behavior": "MergedWithPrevious", "invert": false})");
  EXPECT_EQ(tokens_of(tokenizer_of(json), "ab a"), (Spellings{"ab", "▁a"}));
}

TEST(TokenizerParts, NormalFormsKeepPlaces) {
  auto json = llama_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["normalizer"] = PartsJson::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
      {"type": "Strip", "strip_left": true, "strip_right": true}]})");
  EXPECT_EQ(tokens_of(tokenizer_of(json), " Áｂ "), (Spellings{"ab"}));
  EXPECT_EQ(places_of(tokenizer_of(json), " Áｂ "), (Spellings{"Áｂ"}));
  json["normalizer"] = PartsJson::parse(R"({"type": "NFC"})");
  json["model"]["vocab"]["é"] = 300;
  EXPECT_EQ(places_of(tokenizer_of(json), "e\u0301a"), (Spellings{"e", "a"}));
}

// Falcon's order: steps behind the byte level see its alphabet.
TEST(TokenizerParts, StepsBehindByteLevel) {
  PartsJson vocab = PartsJson::object();
  for (const char* token : {"a", "1", "2", "Ġ", "11", "Â", "½", "a1"}) vocab[token] = vocab.size();
  PartsJson json = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"1 1", "a 1"}}}},
                    {"decoder", {{"type", "ByteLevel"}}}};
  json["pre_tokenizer"] = PartsJson::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
      {"type": "Digits", "individual_digits": false}]})");
  const auto tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokens_of(tokenizer, "a11 ½"), (Spellings{"a", "11", "Ġ", "Â", "½"}));
  EXPECT_EQ(places_of(tokenizer, "a11 ½"), (Spellings{"a", "11", " ", "½", "½"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a11 ½")), "a11 ½");
}

TEST(TokenizerParts, PlacesOfInvalidBytes) {
  const auto tokenizer = tokenizer_of(llama_tokenizer());
  EXPECT_EQ(places_of(tokenizer, "a\xE2\x82 b"),
            (Spellings{"a", "\xE2\x82", "\xE2\x82", "\xE2\x82", " ", "b"}));
}

TEST(TokenizerParts, PostProcessorsTrimPlacesAndSurround) {
  auto json = llama_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["model"]["vocab"]["Ġ"] = 300;
  json["model"]["vocab"]["Ġa"] = 301;
  json["model"]["merges"].push_back("Ġ a");
  json["normalizer"] =
      PartsJson::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "Ġ"})");
  json["post_processor"] = PartsJson::parse(R"({"type": "RobertaProcessing", "cls": ["<s>", 1],
      "sep": ["<s>", 1], "trim_offsets": true, "add_prefix_space": false})");
  EXPECT_EQ(places_of(tokenizer_of(json), "b a"), (Spellings{"", "b", "a", ""}));
  EXPECT_EQ(tokenizer_of(json).encode_with_offsets("b", {.add_special_tokens = false}).ids,
            (std::vector<uint32_t>{4}));
  json["post_processor"]["trim_offsets"] = false;
  EXPECT_EQ(places_of(tokenizer_of(json), "b a"), (Spellings{"", "b", " a", ""}));
}

TEST(TokenizerParts, MetaspaceDecoderDropsTheFirstMark) {
  auto json = llama_tokenizer();
  json["decoder"] = PartsJson::parse(kMarks);
  const auto tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a b")), "a b");
  json["decoder"] = nullptr;
  EXPECT_EQ(tokenizer_of(json).decode(tokenizer.encode("a b")), "▁a ▁ b");
}

// Cutting at characters that no merge joins is only a way to be fast.
TEST(TokenizerParts, MuchTextWithoutAPreTokenizer) {
  auto json = llama_tokenizer();
  json["pre_tokenizer"]["split"] = false;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += i % 7 == 0 ? "aab c" : "ab é";
  const auto tokenizer = tokenizer_of(json);
  json["model"]["ignore_merges"] = true;  // merges the whole text at once
  EXPECT_EQ(tokenizer.encode(text), tokenizer_of(json).encode(text));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

}  // namespace
}  // namespace skein::text
