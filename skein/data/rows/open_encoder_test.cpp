// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/open_encoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/rows/prepare_rows.h"
#include "skein/data/rows/preview_rows.h"
#include "skein/text/test_tokenizer.h"

namespace skein::data {
namespace {

constexpr uint32_t kEnd = 1000, kEndOfTurn = 1002;

// A model folder with a tokenizer of bytes and three special tokens.
class OpenEncoderTest : public TemporaryFolder {
 protected:
  OpenEncoderTest() {
    write("tokenizer.json", text::byte_tokenizer_json({"</s>", "<|im_start|>", "<|im_end|>"}));
    write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    model_.model_name_or_path = folder_.string();
    rows_.chat_format = "chatml";
  }

  RowTokens open() const { return open_row_tokens(model_, rows_); }

  // What is trained on, each part ended by "|".
  std::string trained(const std::string& json) const {
    const auto tokens = open();
    const auto row = tokens.encoder.encode(parse_row(json));
    std::string text;
    for (size_t i = 0; i < row.ids.size(); ++i) {
      const auto id = static_cast<uint32_t>(row.ids[i]);
      if (row.trained[i]) text += tokens.tokenizer->bytes_of(id);
      if (!row.trained[i] && i > 0 && row.trained[i - 1]) text += "|";
    }
    return text;
  }

  config::ModelConfig model_;
  config::RowsConfig rows_;
};

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                     {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";
constexpr const char* kLists =
    R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                   {"role": "user", "content": "r"}],
        "completion": [{"role": "assistant", "content": "b"}]})";

// GPT-2's BOS, and that of every tokenizer that skein trains.
TEST_F(OpenEncoderTest, ABeginningThatEndsTurnsTooIsNotCounted) {
  write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "<|im_start|>"})");
  rows_.chat_format = "alpaca";
  EXPECT_EQ(open().audit.begin, kEnd + 1);
  write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "</s>"})");
  EXPECT_EQ(open().audit.begin, std::nullopt);
  EXPECT_EQ(open().audit.ends_of_turn, std::vector<uint32_t>{kEnd});
}

TEST_F(OpenEncoderTest, TrainsOnWhatTheMasksSay) {
  EXPECT_EQ(trained(kTwoTurns), "a<|im_end|>\n|b<|im_end|>\n");
  EXPECT_EQ(trained(kLists), "b<|im_end|>\n");
  EXPECT_EQ(trained(R"({"prompt": "p ", "completion": "c"})"), "c</s>");
  EXPECT_EQ(trained(R"({"text": "t"})"), "t</s>");
  EXPECT_EQ(trained(R"({"instruction": "i", "output": "o"})"), "o<|im_end|>\n");
  rows_.mask_history = true;
  EXPECT_EQ(trained(kTwoTurns), "b<|im_end|>\n");
  rows_ = {.chat_format = "chatml", .train_on_prompt = true};
  EXPECT_EQ(trained(kLists), trained(kTwoTurns));
  EXPECT_EQ(trained(R"({"prompt": "p ", "completion": "c"})"), "p c</s>");
  rows_.mask_history = true;
  EXPECT_PRED2(contains, refusal<UserError>([&] { open(); }), "leave one out");
}

TEST_F(OpenEncoderTest, KnowsWhatEndsATurn) {
  EXPECT_EQ(open().audit.ends_of_turn, (std::vector<uint32_t>{kEnd, kEndOfTurn}));
  rows_.chat_format = "";
  EXPECT_EQ(open().audit.ends_of_turn, std::vector<uint32_t>{kEnd});
}

TEST_F(OpenEncoderTest, TellsWhatToTypeForTokensThatAreMissing) {
  EXPECT_EQ(open().audit.missing, "");
  rows_.chat_format = "phi3";
  EXPECT_PRED2(contains, open().audit.missing, "template: phi3 ends turns with tokens that ");
  EXPECT_PRED2(contains, open().audit.missing,
               R"(new_special_tokens: ["<|user|>", "<|end|>", "<|assistant|>"] and resize_vocab)");
  model_.new_special_tokens = {"<|user|>", "<|end|>", "<|assistant|>"};
  EXPECT_EQ(open().audit.missing, "");
}

TEST_F(OpenEncoderTest, TellsWhatToTypeForAnEndThatNobodyNamed) {
  rows_.chat_format = "alpaca";
  EXPECT_EQ(open().audit.missing, "");
  write("tokenizer_config.json", "{}");
  EXPECT_PRED2(contains, open().audit.missing, "template: alpaca ends turns with eos_token, and ");
  EXPECT_PRED2(contains, open().audit.missing, "an \"eos_token\": \"<|endoftext|>\"");
}

TEST_F(OpenEncoderTest, TellsEncodersApart) {
  EXPECT_PRED2(contains, open().encoder.identity, "trained assistant") << "stored: no number";
  std::set<std::string> seen = {open().encoder.identity};
  EXPECT_EQ(open().encoder.identity, *seen.begin());
  rows_.mask_history = true;
  EXPECT_TRUE(seen.insert(open().encoder.identity).second);
  rows_ = {.chat_format = "chatml", .train_on_prompt = true};
  EXPECT_TRUE(seen.insert(open().encoder.identity).second);
  rows_ = {.chat_format = "phi3"};
  EXPECT_TRUE(seen.insert(open().encoder.identity).second);
  rows_ = {.chat_format = "", .chat_template = write("own.jinja", "{{ messages }}").string()};
  EXPECT_TRUE(seen.insert(open().encoder.identity).second);
  rows_ = {.chat_format = "chatml"};
  write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_TRUE(seen.insert(open().encoder.identity).second);
}

TEST_F(OpenEncoderTest, ConversationsNeedATemplateAndOthersDoNot) {
  rows_.chat_format = "";
  EXPECT_EQ(trained(R"({"prompt": "p ", "completion": "c"})"), "c</s>");
  config::DataConfig data;
  data.train_file = write("rows.jsonl", R"({"text": "t"})"
                                        "\n" +
                                            nlohmann::json::parse(kTwoTurns).dump() + "\n")
                        .string();
  data.data_cache_dir = (folder_ / "cache").string();
  data.bad_lines = config::BadLines::kSkip;  // it is no row's fault
  const auto why = refusal<UserError>([&] { prepare_rows(data, open().encoder, Split::kTrain); });
  EXPECT_PRED2(contains, why, "rows.jsonl:2: ");
  EXPECT_PRED2(contains, why, "chatml, llama3");
}

TEST_F(OpenEncoderTest, ARowThatTheTemplateRefusesIsABadRow) {
  rows_ = {.chat_format = "",
           .chat_template = write("strict.jinja", "{{ raise_exception('not today') }}").string()};
  const auto row = parse_row(kTwoTurns);
  EXPECT_PRED2(contains, refusal<IoError>([&] { open().encoder.encode(row); }), "not today");
}

TEST_F(OpenEncoderTest, AnswersThatWereJudgedAreTrainedOnAlone) {
  EXPECT_EQ(open_row_tokens(model_, rows_, RowKind::kPairs).encoder.kind, RowKind::kPairs);
  rows_.train_on_prompt = true;
  EXPECT_PRED2(contains,
               refusal<UserError>([&] { open_row_tokens(model_, rows_, RowKind::kFeedback); }),
               "train_on_prompt: answers that were judged are compared without their prompt");
}

TEST_F(OpenEncoderTest, NeedsATokenizer) {
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_PRED2(contains, refusal<UserError>([&] { open(); }), "needs a tokenizer");
}

// 1,200 rows of 25 tokens, of which the beginning is read.
TEST_F(OpenEncoderTest, APreviewExtrapolates) {
  std::string rows;
  const auto row =
      R"({"prompt": "pppppppppp", "completion": "cccccccccccccc"})" + std::string(300, ' ') + "\n";
  for (int i = 0; i < 1200; ++i) rows += row;
  const auto path = write("many.jsonl", rows);
  const RunRowsOptions options{
      .data = {}, .encoder = open().encoder, .limits = {.cutoff_len = 50}, .vocab_size = 1003};
  const auto seen = preview_rows({.kind = SourceKind::kRows, .files = {path}}, Split::kTrain,
                                 options, open().audit);
  EXPECT_FALSE(seen.exact);
  EXPECT_NEAR(static_cast<double>(seen.rows), 1200, 2);
  EXPECT_NEAR(static_cast<double>(seen.tokens), 1200 * 25, 50);
  EXPECT_NEAR(static_cast<double>(seen.packs), 600, 2);
  EXPECT_EQ(seen.lengths[0], 25);
  EXPECT_EQ(seen.bytes, rows.size());
}

}  // namespace
}  // namespace skein::data
