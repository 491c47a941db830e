// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/prompt_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/loader.h"
#include "skein/data/rows/inspect_rows.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/data/rows/pair_source.h"
#include "skein/data/rows/preview_rows.h"
#include "skein/data/rows/prompt_row.h"
#include "skein/data/rows/run_rows.h"
#include "skein/text/test_tokenizer.h"

namespace skein::data {
namespace {

// role: content, one after the other; plain text as it is.
std::string asked(const std::string& json) {
  const auto row = parse_prompt(json);
  if (row.kind == Row::Kind::kText) return "text: " + row.text;
  std::string text;
  for (const auto& message : row.conversation.messages) {
    text += (text.empty() ? "" : "|") + message.role + ": " + message.content;
  }
  return text;
}

TEST(PromptRow, WhatIsAskedIsFoundByColumns) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "Say hi", "answer": 3})", "text: Say hi"},
      {R"({"prompt": [{"role": "user", "content": "q"}], "solution": "a"})", "user: q"},
      {R"({"prompt": {"role": "user", "content": "q"}})", "user: q"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "gold"}]})",
       "user: q"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                        {"role": "user", "content": "r"}]})",
       "user: q|assistant: a|user: r"},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "gold"}],
          "system": "s"})",
       "system: s|user: q"},
      {R"({"instruction": "i", "input": "j", "output": "gold", "system": "s"})",
       "system: s|user: i\nj"},
      {R"({"question": "1 + 1?", "answer": "#### 2"})", "user: 1 + 1?"},
      {R"({"prompt": "p", "chosen": "a", "rejected": "b"})", "text: p"},
  };
  for (const auto& [json, expected] : cases) EXPECT_EQ(asked(json), expected) << json;
}

TEST(PromptRow, WhatAsksNothingIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": "a document"})", "expected a prompt: \"prompt\", \"messages\""},
      {R"({"problem": "1 + 1"})", "rename it: jq -c '.question = .problem | del(.problem)'"},
      {R"({"prompt": ""})", "\"prompt\" is empty"},
      {R"({"question": ""})", "\"question\" is empty"},
      {R"({"prompt": "p", "system": "s"})", "the row has a \"system\" beside"},
      {R"({"prompt": 3})", "must be a text, a message or a list of messages"},
      {R"({"messages": [{"role": "assistant", "content": "a"}]})", "nothing to answer"},
      {R"({"messages": [{"role": "system", "content": "a"}]})", "nothing to answer"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})",
       "roles out of order"},
      {R"({"prompt": "p", "image": "x.png"})", "the row holds an image"},
      {R"({"prompt": "p", "prompt": "q"})", "occurs twice"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_PRED2(contains, refusal<IoError>([&] { parse_prompt(json); }), message);
  }
}

class PromptSourceTest : public TemporaryFolder {
 protected:
  PromptSourceTest() {
    write("tokenizer.json", text::byte_tokenizer_json({"</s>", "<|im_start|>", "<|im_end|>"}));
    write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    model_.model_name_or_path = folder_.string();
    rows_.chat_format = "chatml";
    options_.data.data_cache_dir = (folder_ / "cache").string();
    options_.limits = {.cutoff_len = 512, .excess_length = ExcessLength::kDrop};
    options_.vocab_size = 2000;
  }

  // The options, of these rows.
  const RunRowsOptions& of(const std::string& rows, const char* name = "train.jsonl") {
    options_.data.train_file = write(name, rows).string();
    tokens_ = std::make_unique<RowTokens>(open_row_tokens(model_, rows_, RowKind::kPrompts));
    options_.encoder = tokens_->encoder;
    return options_;
  }

  std::shared_ptr<const PromptSource> open(const std::string& rows,
                                           const char* name = "train.jsonl") {
    return std::static_pointer_cast<const PromptSource>(open_run_rows(of(rows, name)).train.source);
  }

  std::string text_of(const SampleSource& source, int64_t sample) const {
    std::vector<int64_t> ids(static_cast<size_t>(source.length(sample))), targets(ids.size());
    source.read(sample, ids, targets);
    EXPECT_EQ(std::ranges::count(targets, tensor::kIgnore), std::ssize(targets));
    std::string text;
    for (const auto id : ids) text += tokens_->tokenizer->bytes_of(static_cast<uint32_t>(id));
    return text;
  }

  config::ModelConfig model_;
  config::RowsConfig rows_;
  RunRowsOptions options_;
  std::unique_ptr<RowTokens> tokens_;
};

TEST_F(PromptSourceTest, ATemplatePrintsThePromptForAnAnswerAndPlainTextIsAsItIs) {
  const auto source = open(
      "{\"question\": \"1 + 1?\", \"answer\": \"#### 2\"}\n"
      "{\"prompt\": \"Once upon\"}\n");
  ASSERT_EQ(source->count(), 2);
  EXPECT_EQ(text_of(*source, 0), "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(*source, 1), "Once upon");
  EXPECT_EQ(source->num_targets(0), 0);
  EXPECT_EQ(source->counts_of(0).samples, 1);
}

TEST_F(PromptSourceTest, TheRowStandsInTheSourceAsItStandsInItsFile) {
  const std::string first = R"({"prompt":  "p", "gold": {"a": [1, 2.50]}, "ü": null})";
  const std::string second = R"({"question": "q", "answer": "a"})";
  const auto lines = open("  " + first + " \r\n\n" + second + "\n");
  EXPECT_EQ(lines->row_json(0), first);
  EXPECT_EQ(lines->row_json(1), second);
  const auto list = open("[\n" + first + ",\n" + second + " ]\n", "train.json");
  EXPECT_EQ(list->row_json(0), first);
  EXPECT_EQ(list->row_json(1), second);
  // Prepared once; read again from its file.
  const auto again = open_run_rows(options_).train.source;
  EXPECT_TRUE(again->prepared().was_reused);
  EXPECT_EQ(std::static_pointer_cast<const PromptSource>(again)->row_json(1), second);
  EXPECT_EQ(again->place_of(1), (folder_ / "train.json").string() + ":2");
}

TEST_F(PromptSourceTest, LongPromptsAreLeftOutLoseTheirBeginningOrEndTheRun) {
  const std::string rows = "{\"prompt\": \"0123456789\"}\n{\"prompt\": \"abc\"}\n";
  options_.limits.cutoff_len = 4;
  const auto dropped = open(rows);
  EXPECT_EQ(dropped->count(), 1);
  EXPECT_EQ(dropped->counts().too_long, 1);
  EXPECT_EQ(dropped->row_json(0), "{\"prompt\": \"abc\"}");
  options_.limits.excess_length = ExcessLength::kTruncate;
  const auto cut = open(rows);
  EXPECT_EQ(text_of(*cut, 0), "6789");
  EXPECT_EQ(text_of(*cut, 1), "abc");
  options_.limits.excess_length = ExcessLength::kError;
  EXPECT_PRED2(contains, refusal<IoError>([&] { open(rows); }),
               "train.jsonl:1: the prompt has 10 tokens, max_prompt_length is 4; give a larger "
               "max_prompt_length, or long_prompts: drop or truncate_left");
  options_.limits = {.cutoff_len = 1, .excess_length = ExcessLength::kDrop};
  EXPECT_PRED2(contains, refusal<IoError>([&] { open(rows); }),
               "all of 2 prompts are longer than max_prompt_length=1");
}

TEST_F(PromptSourceTest, BadRowsAreNamedOrCounted) {
  EXPECT_PRED2(contains,
               refusal<IoError>([&] { open("{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n"); }),
               "train.jsonl:2: expected a prompt");
  options_.data.bad_lines = config::BadLines::kSkip;
  const auto source = open("{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n{\"prompt\": \"c\"}\n");
  EXPECT_EQ(source->count(), 2);
  EXPECT_EQ(source->row_json(1), "{\"prompt\": \"c\"}");
}

TEST_F(PromptSourceTest, AStepIsManyPromptsAndEpochsShuffleThem) {
  std::string rows;
  for (int i = 0; i < 7; ++i) rows += fmt::format("{{\"prompt\": \"p{}\"}}\n", i);
  options_.evaluates = true;
  options_.val_size = 2;
  auto samples = open_rows(of(rows));
  const auto source = std::static_pointer_cast<const PromptSource>(samples.train.source);
  ASSERT_TRUE(samples.eval);
  EXPECT_EQ(samples.eval->set.count(), 2);
  const data::Loader loader(samples, {.per_device_batch = 2, .eval_batch = 1}, 0, 1);
  EXPECT_EQ(loader.steps_per_epoch(), 3);
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < 3; ++step) {
    const auto batches = loader.batches(step);
    ASSERT_EQ(batches.micro_batches.size(), 1U);
    EXPECT_EQ(batches.counts.samples, std::ssize(batches.samples));
    seen.insert(seen.end(), batches.samples.begin(), batches.samples.end());
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::unique(seen).begin(), seen.end());
  EXPECT_EQ(seen.size(), 5U);
}

TEST_F(PromptSourceTest, PeopleAndPlansSeeThem) {
  options_.limits.cutoff_len = 9;
  of("{\"prompt\": \"0123456789\"}\n{\"prompt\": \"abc\"}\n{\"prompt\": \"defg\"}\n");
  const auto described = describe_rows(open_run_rows(options_), options_, tokens_->audit);
  EXPECT_FALSE(described.refusal);
  EXPECT_PRED2(contains, described.text, "train  2 of 3 prompts: 7 tokens\n");
  EXPECT_PRED2(contains, described.text, "1 prompts longer than max_prompt_length=9 left out");
  const auto shown = inspect_rows(options_, {.rows = 2}, [&](std::span<const uint32_t> ids) {
    std::string text;
    for (const auto id : ids) text += tokens_->tokenizer->bytes_of(id);
    return text;
  });
  EXPECT_PRED2(contains, shown, "abc");
  const auto preview = preview_rows(find_row_sources(options_.data, Split::kTrain), Split::kTrain,
                                    options_, tokens_->audit);
  EXPECT_TRUE(preview.exact);
  EXPECT_EQ(preview.rows, 2);
  EXPECT_EQ(preview.longest, 4);
}

TEST_F(PromptSourceTest, WithoutATemplateOnlyTextIsAPrompt) {
  rows_.chat_format.clear();
  EXPECT_EQ(open("{\"prompt\": \"a\"}\n")->count(), 1);
  EXPECT_NE(refusal<UserError>([&] { open("{\"question\": \"a\"}\n"); }), "");
}

}  // namespace
}  // namespace skein::data
