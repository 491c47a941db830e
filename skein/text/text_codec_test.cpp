// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_codec.h"

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/bpe_trainer.h"
#include "skein/text/parts/byte_level.h"
#include "skein/text/tokenizer.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {
namespace {

using CodecIds = std::vector<uint32_t>;
using CodecJson = nlohmann::json;

// A tokenizer of all bytes and "the", whose end is <|endoftext|>.
CodecJson codec_tokenizer() {
  return CodecJson::parse(to_tokenizer_json(train_bpe(
      {{"the", 9}}, {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|user|>"}})));
}

class TextCodecTest : public TemporaryFolder {
 protected:
  void write_tokenizer(const CodecJson& json) const { write("t/tokenizer.json", json.dump()); }
  std::unique_ptr<TextCodec> open() const { return open_tokenizer(folder_ / "t"); }
};

TEST_F(TextCodecTest, BytesAreIdsAndTheirEndIs256) {
  const ByteCodec codec;
  CodecIds ids = {7};
  codec.encode("A\xff", ids);
  EXPECT_EQ(ids, (CodecIds{7, 65, 255}));
  EXPECT_EQ(codec.encode_prompt("A\xff"), (CodecIds{65, 255}));
  EXPECT_EQ(codec.bytes_of(255), "\xff");
  EXPECT_EQ(codec.bytes_of(256), "");
  EXPECT_EQ(codec.decode(CodecIds{65, 256, 300}), "A<|end|><|300|>");
  EXPECT_EQ(codec.end(), 256u);
  EXPECT_EQ(codec.end_of_document(), 256u);
  EXPECT_EQ(codec.vocab_size(), 257);
  EXPECT_TRUE(codec.is_bytes());
}

TEST_F(TextCodecTest, BytesThatNobodyAskedForAreNoted) {
  config::ModelConfig model{.model_name_or_path = folder_ / "m"};
  write("m/config.json", "{}");
  EXPECT_PRED2(contains, bytes_note(model), "m has no tokenizer.json: tokens are bytes");
  model.tokenizer_name_or_path = "bytes";
  EXPECT_EQ(bytes_note(model), "");
  EXPECT_TRUE(open_codec(model)->is_bytes());
  model.tokenizer_name_or_path = "";
  write("m/tokenizer.json", codec_tokenizer().dump());
  EXPECT_EQ(bytes_note(model), "");
}

TEST_F(TextCodecTest, OnlyPromptsGetWhatTheTokenizerPutsAround) {
  auto json = codec_tokenizer();
  json["post_processor"] = CodecJson::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<|user|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<|user|>": {"id": "<|user|>", "ids": [1], "tokens": ["<|user|>"]}}})");
  write_tokenizer(json);
  const auto codec = open();
  const auto tokenizer = Tokenizer::load(folder_ / "t");
  const uint32_t the = tokenizer.id_of("the").value();
  CodecIds ids;
  codec->encode("the", ids);
  EXPECT_EQ(ids, (CodecIds{the}));
  EXPECT_EQ(codec->encode_prompt("the"), (CodecIds{1, the}));
  EXPECT_EQ(codec->bytes_of(the), "the");
  EXPECT_EQ(codec->bytes_of(1), "") << "special tokens are not shown";
  EXPECT_EQ(codec->bytes_of(100'000), "");
  EXPECT_EQ(codec->decode(CodecIds{1, the, 100'000}), "<|user|>the<|100000|>") << "to be read";
  EXPECT_EQ(codec->end(), 0u);
  EXPECT_EQ(codec->vocab_size(), tokenizer.vocab_size());
  EXPECT_FALSE(codec->is_bytes());
}

TEST_F(TextCodecTest, DocumentsNeedAnEnd) {
  auto json = codec_tokenizer();
  json["added_tokens"][0]["content"] = "<|other|>";
  json["model"]["vocab"].erase("<|endoftext|>");
  json["model"]["vocab"]["<|other|>"] = 0;
  write_tokenizer(json);
  EXPECT_EQ(open()->end(), std::nullopt);
  const auto message = refusal<UserError>([&] { open()->end_of_document(); });
  EXPECT_EQ(message.find((folder_ / "t").string() + ": the tokenizer names no eos_token"), 0u);
  write("t/tokenizer_config.json", R"({"eos_token": "<|user|>"})");
  EXPECT_EQ(open()->end_of_document(), 1u);
}

TEST_F(TextCodecTest, IdentityFollowsTheFilesAndNeedsNoParser) {
  write_tokenizer(codec_tokenizer());
  const auto first = open()->identity();
  EXPECT_EQ(open_tokenizer(folder_ / "t" / "tokenizer.json")->identity(), first);
  write("t/tokenizer_config.json", "{}");
  EXPECT_NE(open()->identity(), first);
  write("t/tokenizer.json", "broken");
  const auto broken = open();
  EXPECT_EQ(broken->identity().find("tokenizer "), 0u);
  EXPECT_FALSE(broken->is_bytes());
  EXPECT_PRED2(contains, refusal<UserError>([&] { broken->vocab_size(); }), "invalid JSON");
}

TEST_F(TextCodecTest, AVocabularyIsReadOnceUntilItsFilesChange) {
  write_tokenizer(codec_tokenizer());
  const auto first = shared_tokenizer(folder_ / "t");
  EXPECT_EQ(shared_tokenizer(folder_ / "t"), first);
  EXPECT_NE(shared_tokenizer(folder_ / "t", {"<|new|>"}), first);
  write("t/tokenizer_config.json", R"({"eos_token": "<|user|>"})");
  const auto changed = shared_tokenizer(folder_ / "t");
  EXPECT_NE(changed, first);
  EXPECT_EQ(changed->eos_id(), 1u);
  write("t/tokenizer.json", "broken");
  EXPECT_THROW(shared_tokenizer(folder_ / "t"), UserError);
  EXPECT_EQ(changed->eos_id(), 1u);
}

TEST_F(TextCodecTest, UnknownSplittingIsNotCut) {
  const auto cuts = [](const char* pointer, const char* value) {
    auto json = codec_tokenizer();
    json[CodecJson::json_pointer(pointer)] = CodecJson::parse(value);
    return Tokenizer::parse(json.dump(), "t").cuts();
  };
  EXPECT_EQ(cuts("/normalizer", "null"), Cuts::kBetweenWords);
  EXPECT_EQ(cuts("/normalizer", R"({"type": "NFC"})"), Cuts::kBetweenWords);
  EXPECT_EQ(cuts("/pre_tokenizer/add_prefix_space", "true"), Cuts::kNowhere);
  EXPECT_EQ(cuts("/pre_tokenizer/use_regex", "false"), Cuts::kNowhere) << "nothing splits";
  EXPECT_EQ(cuts("/added_tokens/1/content", R"("a b")"), Cuts::kNowhere);
  EXPECT_EQ(cuts("/added_tokens/1/rstrip", "true"), Cuts::kNowhere);
  const auto sequence = [&](const std::string& step) {
    const auto list = R"({"type": "Sequence", "pretokenizers": [)" + step +
                      R"(, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
    return cuts("/pre_tokenizer", list.c_str());
  };
  const auto split = [](const std::string& pattern, const char* behavior) {
    return CodecJson{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}}
        .dump();
  };
  EXPECT_EQ(sequence(split(kGpt2Pattern, "Isolated")), Cuts::kBetweenWords);
  EXPECT_EQ(sequence(split("a b", "Isolated")), Cuts::kNowhere);
  EXPECT_EQ(sequence(split(kGpt2Pattern, "Removed")), Cuts::kNowhere);
  EXPECT_EQ(sequence(R"({"type": "Digits", "individual_digits": true})"), Cuts::kNowhere);
}

TEST_F(TextCodecTest, TheModelsTokenizerIsTheDefault) {
  write_tokenizer(codec_tokenizer());
  config::ModelConfig model;
  EXPECT_EQ(open_codec(model)->identity(), "bytes");
  model.model_name_or_path = (folder_ / "t").string();
  EXPECT_EQ(open_codec(model)->identity(), open()->identity());
  model.tokenizer_name_or_path = (folder_ / "none").string();
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_codec(model); }), "there is no ");
  fs::create_directories(folder_ / "none/tokenizer.json");
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_codec(model); }), "is no regular file");
  model = {.model_name_or_path = (folder_ / "other").string()};
  EXPECT_EQ(open_codec(model)->identity(), "bytes");
  write("other/tokenizer.model", "x");
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_codec(model); }), "no tokenizer.json");
}

}  // namespace
}  // namespace skein::text
