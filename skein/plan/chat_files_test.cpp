// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/chat_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/model_texts.h"
#include "skein/text/chat_template.h"
#include "skein/text/test_tokenizer.h"

namespace skein::plan {
namespace {

using nlohmann::json;
using Files = std::map<std::string, std::string>;

// <|im_start|> is 1000, <|im_end|> 1001, </s> 1002.
class ChatFiles : public TemporaryFolder {
 protected:
  ChatFiles() { model.model_name_or_path = folder_.string(); }

  Files complete(Files files) {
    files.emplace("tokenizer.json",
                  text::byte_tokenizer_json({"<|im_start|>", "<|im_end|>", "</s>"}));
    for (const auto& [name, text] : files) write(name, text);
    changes = json::parse(add_chat_files(model, rows, files));
    return files;
  }

  config::ModelConfig model;
  config::RowsConfig rows;
  json changes;  // of config.json
};

TEST_F(ChatFiles, ANamedTemplateForABaseModel) {
  write("config.json", R"({"eos_token_id": 1002, "bos_token_id": 1, "pad_token_id": null})");
  rows.chat_format = "chatml";
  const auto files = complete({{"tokenizer_config.json", R"({"eos_token": "</s>"})"}});
  EXPECT_EQ(files.at("chat_template.jinja"), text::built_in_template("chatml"));
  EXPECT_EQ(json::parse(files.at("generation_config.json")),
            json({{"bos_token_id", 1}, {"eos_token_id", {1002, 1001}}}));
  EXPECT_EQ(changes, json({{"eos_token_id", {1002, 1001}}}));
  EXPECT_EQ(files.at("tokenizer_config.json"), R"({"eos_token": "</s>"})");
}

TEST_F(ChatFiles, NamedTemplatesStayUnlessAnotherIsGiven) {
  const Files own = {
      {"tokenizer_config.json", R"({"eos_token": "</s>"})"},
      {"chat_template.jinja", "{% for m in messages %}{{ m.content }}</s>{% endfor %}"},
      {"additional_chat_templates/rag.jinja", "r"}};
  EXPECT_EQ(complete(own).at("additional_chat_templates/rag.jinja"), "r");
  rows.chat_format = "chatml";
  EXPECT_FALSE(complete(own).contains("additional_chat_templates/rag.jinja"));
}

TEST_F(ChatFiles, OfAFolderAreAllThatItsTokenizerHas) {
  config::RunConfig config;
  config.model = model;
  const std::vector<std::string> names = {"additional_chat_templates/rag.jinja",
                                          "chat_template.jinja", "generation_config.json",
                                          "tokenizer.json", "tokenizer_config.json"};
  for (const auto& name : names) write(name, "{}");
  write("config.json", "{}");
  const auto saved = [&] {
    std::vector<std::string> found;
    for (const auto& [name, text] : texts_beside_weights(config).files) found.push_back(name);
    return found;
  };
  EXPECT_EQ(saved(), names);
  config.model.tokenizer_name_or_path = write("mine.json", "other").string();
  EXPECT_EQ(saved(), (std::vector<std::string>{"generation_config.json", "tokenizer.json"}))
      << "the others are the folder's";
  EXPECT_EQ(texts_beside_weights(config).files.at("tokenizer.json"), "other");
  config.model.tokenizer_name_or_path = "bytes";
  EXPECT_EQ(saved(), std::vector<std::string>{"generation_config.json"});
}

TEST_F(ChatFiles, AnAdaptersGenerationSettingsCountMore) {
  config::RunConfig config;
  config.model.model_name_or_path = (folder_ / "base").string();
  config.finetune.adapter_name_or_path = (folder_ / "adapter").string();
  write("base/generation_config.json", "base");
  write("adapter/adapter_config.json", "{}");
  const auto saved = [&] {
    return texts_beside_weights(config).files.at("generation_config.json");
  };
  EXPECT_EQ(saved(), "base");
  write("adapter/generation_config.json", "adapter");
  EXPECT_EQ(saved(), "adapter");
}

TEST_F(ChatFiles, AnotherTemplateThanTheFolders) {
  rows.chat_template =
      write("mine.jinja", "{% for m in messages %}{{ m.content }}</s>{% endfor %}").string();
  const auto files =
      complete({{"tokenizer_config.json", R"({"chat_template": "old", "eos_token": "<|im_end|>"})"},
                {"generation_config.json", R"({"temperature": 0.6, "eos_token_id": 1001})"}});
  EXPECT_EQ(files.at("chat_template.jinja"),
            "{% for m in messages %}{{ m.content }}</s>{% endfor %}");
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json")), json({{"eos_token", "<|im_end|>"}}));
  EXPECT_EQ(json::parse(files.at("generation_config.json")),
            json({{"temperature", 0.6}, {"eos_token_id", {1001, 1002}}}));
}

TEST_F(ChatFiles, TheFoldersOwnTemplateStaysWhereItIs) {
  const std::string own = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";
  const auto config = json({{"chat_template", own}, {"eos_token", "<|im_end|>"}}).dump();
  const auto files = complete({{"tokenizer_config.json", config}});
  EXPECT_FALSE(files.contains("chat_template.jinja"));
  EXPECT_EQ(files.at("tokenizer_config.json"), config);
  EXPECT_EQ(json::parse(files.at("generation_config.json")), json({{"eos_token_id", 1001}}));
  EXPECT_EQ(changes, json({{"eos_token_id", 1001}}));
}

// As transformers' Trainer does; tests/parity has the comparison.
TEST_F(ChatFiles, IdsFollowTheTokenizer) {
  const auto names =
      R"({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "</s>"})";
  write("config.json", R"({"eos_token_id": 7, "bos_token_id": 6, "pad_token_id": null})");
  auto files = complete({{"tokenizer_config.json", names}});
  EXPECT_EQ(changes,
            json({{"bos_token_id", 1000}, {"eos_token_id", 1001}, {"pad_token_id", 1002}}));
  EXPECT_EQ(json::parse(files.at("generation_config.json")),
            json({{"bos_token_id", 1000}, {"eos_token_id", {1001, 7}}, {"pad_token_id", 1002}}));
  write("config.json", R"({"eos_token_id": [7, 8], "bos_token_id": 1000, "pad_token_id": 1002})");
  files = complete({{"tokenizer_config.json", names},
                    {"generation_config.json", R"({"eos_token_id": 9, "pad_token_id": 1002})"}});
  EXPECT_EQ(changes, json({{"eos_token_id", {1001, 7, 8}}}));
  EXPECT_EQ(json::parse(files.at("generation_config.json"))["eos_token_id"], json({1001, 9}));
  EXPECT_EQ(
      with_changes(R"({"b": 1, "eos_token_id": 7, "a": 2})", changes.dump()),
      "{\n  \"b\": 1,\n  \"eos_token_id\": [\n    1001,\n    7,\n    8\n  ],\n  \"a\": 2\n}\n");
  // Nothing is known of what the tokenizer does not name.
  write("config.json", R"({"eos_token_id": 7, "bos_token_id": 6})");
  complete({{"tokenizer_config.json", "{}"}});
  EXPECT_EQ(changes, json::object());
}

TEST_F(ChatFiles, ATemplateThatIsNotCarriedIsWritten) {
  write("chat_template.json", R"({"chat_template": "{{ messages[-1].content }}<|im_end|>"})");
  const auto files = complete({});
  EXPECT_EQ(files.at("chat_template.jinja"), "{{ messages[-1].content }}<|im_end|>");
}

TEST_F(ChatFiles, WithoutATemplateTheTextsEndCounts) {
  const auto files = complete({{"tokenizer_config.json", R"({"eos_token": "</s>"})"}});
  EXPECT_FALSE(files.contains("chat_template.jinja"));
  EXPECT_EQ(json::parse(files.at("generation_config.json")), json({{"eos_token_id", 1002}}));
}

TEST_F(ChatFiles, BytesHaveNoFiles) {
  Files files;
  EXPECT_EQ(add_chat_files(model, rows, files), "{}");
  EXPECT_TRUE(files.empty());
}

TEST_F(ChatFiles, BrokenFilesAreNamed) {
  EXPECT_PRED2(contains, refusal<UserError>([&] { complete({{"generation_config.json", "[1]"}}); }),
               "generation_config.json: no JSON object");
}

}  // namespace
}  // namespace skein::plan
