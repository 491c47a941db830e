// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_template.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::text {
namespace {

const std::map<std::string, std::string> kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

Conversation hello() {
  return {.messages = {{.role = "system", .content = "Be kind."},
                       {.role = "user", .content = " Hi "},
                       {.role = "assistant", .content = "Hello!"},
                       {.role = "user", .content = "Bye"},
                       {.role = "assistant", .content = "Bye!"}}};
}

TEST(ChatTemplate, BuiltInsPrintTheirFormat) {
  const std::pair<const char*, const char*> expected[] = {
      {"chatml",
       "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
       "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
       "<|im_start|>assistant\nBye!<|im_end|>\n"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nBye!<|eot_id|>"},
      {"qwen",
       "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
       "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
       "<|im_start|>assistant\nBye!<|im_end|>\n"},
      {"mistral", "<s>[INST] Be kind.\n\n Hi [/INST] Hello!</s>[INST] Bye[/INST] Bye!</s>"},
      {"gemma",
       "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!"
       "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\nBye!"
       "<end_of_turn>\n"},
      {"phi3",
       "<|system|>\nBe kind.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\nHello!<|end|>\n"
       "<|user|>\nBye<|end|>\n<|assistant|>\nBye!<|end|>\n"},
      {"alpaca",
       "<s>Be kind.\n\n### Instruction:\n Hi \n\n### Response:\nHello!</s>\n\n"
       "### Instruction:\nBye\n\n### Response:\nBye!</s>\n\n"},
  };
  ASSERT_EQ(std::size(expected), built_in_templates().size());
  for (const auto& [name, text] : expected) {
    SCOPED_TRACE(name);
    const auto chat = ChatTemplate::parse(built_in_template(name), name, kTokens);
    const auto rendered = chat.render(hello());
    EXPECT_EQ(rendered.text, text);
    ASSERT_EQ(rendered.generated.size(), 2U);
    const auto last = rendered.text.substr(rendered.generated[1].begin);
    EXPECT_TRUE(last.starts_with("Bye!") || last.starts_with(" Bye!")) << last;
    // What a generation continues is what training showed it.
    const auto prompt = chat.render(hello(), {.add_generation_prompt = true, .num_messages = 4});
    EXPECT_EQ(prompt.text, rendered.text.substr(0, rendered.generated[1].begin));
  }
}

TEST(ChatTemplate, BuiltInsLeaveNothingOutSilently) {
  auto with_tools = hello();
  with_tools.tools_json = R"([{"type": "function"}])";
  auto with_calls = hello();
  with_calls.messages[2].extra_json = R"({"tool_calls": [{}]})";
  auto twice = hello();
  twice.messages[3].role = "assistant";
  for (const auto& name : built_in_templates()) {
    const auto chat = ChatTemplate::parse(built_in_template(name), name, kTokens);
    EXPECT_PRED2(contains, refusal<UserError>([&] { chat.render(with_tools); }),
                 "has no form for tools")
        << name;
    EXPECT_PRED2(contains, refusal<UserError>([&] { chat.render(with_calls); }),
                 "plain text alone");
  }
  const auto gemma = ChatTemplate::parse(built_in_template("gemma"), "gemma", kTokens);
  EXPECT_PRED2(contains, refusal<UserError>([&] { gemma.render(twice); }), "turns must alternate");
}

TEST(ChatTemplate, MessagesCarryTheirOtherFields) {
  Conversation conversation{
      .messages = {
          {.role = "assistant",
           .content = "",
           .extra_json = R"({"content": null, "reasoning": "hm", "tool_calls": [{"id": 7}]})"}}};
  EXPECT_EQ(ChatTemplate::parse("{{ messages[0] }}{{ tools }}{{ documents }}", "t")
                .render(conversation)
                .text,
            "{'thinking': 'hm', 'role': 'assistant', 'content': None, 'reasoning': 'hm', "
            "'tool_calls': [{'id': 7}], 'reasoning_content': 'hm'}NoneNone");
  EXPECT_EQ(ChatTemplate::parse("{{ enable_thinking }}", "t")
                .render(conversation, {.extra_json = R"({"enable_thinking": false})"})
                .text,
            "False");
  conversation.messages[0].extra_json = "{";
  EXPECT_PRED2(contains,
               refusal<UserError>([&] { ChatTemplate::parse("", "t").render(conversation); }),
               "message 1:1:2");
}

class ChatTemplateFolder : public TemporaryFolder {
 protected:
  std::string text(const ChatTemplateOptions& options = {}) const {
    auto all = options;
    all.folder = folder_;
    Conversation conversation{.messages = {{.role = "user", .content = "hi"}}};
    conversation.tools_json = tools_;
    return ChatTemplate::open(all).render(conversation).text;
  }

  std::string tools_;
};

TEST_F(ChatTemplateFolder, IsFoundInTheTokenizersConfiguration) {
  write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            "bos_token": "<b>", "add_bos_token": true, "eos_token": {"content": "<e>"}})");
  EXPECT_EQ(text(), "<b>hi<e>");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "pad_token": "<p>"})");
  EXPECT_EQ(text(), "<b>hi<e>");
  write("chat_template.jinja", "file {{ pad_token }}\n");
  EXPECT_EQ(text(), "file <p>");
  write("mine.jinja", "mine {{ bos_token }}");
  EXPECT_EQ(text({.file = (folder_ / "mine.jinja").string()}), "mine <b>");
  EXPECT_EQ(text({.name = "phi3"}), "<|user|>\nhi<|end|>\n");
}

TEST_F(ChatTemplateFolder, BehindALinkThatLeadsOutIsNotRead) {
  const auto secret = write("secret", R"({"chat_template": "s"})");
  make_directories(folder_ / "model/additional_chat_templates");
  for (const char* name : {"chat_template.jinja", "additional_chat_templates/tool_use.jinja",
                           "chat_template.json", "tokenizer_config.json"}) {
    const auto link = folder_ / "model" / name;
    fs::create_symlink(secret, link);
    EXPECT_PRED2(contains,
                 refusal<IoError>([&] { ChatTemplate::find({.folder = folder_ / "model"}); }),
                 "leads out of its folder")
        << name;
    fs::remove(link);
  }
}

TEST_F(ChatTemplateFolder, MayHaveSeveral) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"},
                              {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(text(), "d");
  EXPECT_EQ(text({.file = "rag"}), "r");
  EXPECT_PRED2(
      contains, refusal<UserError>([&] { text({.file = "tool"}); }),
      "there is no file tool; templates of " + folder_.string() + " are default, rag, tool_use");
  tools_ = "[]";
  EXPECT_EQ(text(), "t");
  write("chat_template.jinja", "D");
  write("additional_chat_templates/tool_use.jinja", "T");
  EXPECT_EQ(text(), "T");
  tools_ = "";
  EXPECT_EQ(text(), "D");
}

TEST_F(ChatTemplateFolder, OfAProcessorIsFound) {
  write("chat_template.json", R"({"chat_template": "p"})");
  EXPECT_EQ(text(), "p");
}

TEST_F(ChatTemplateFolder, WithoutOneNamesTheBuiltIns) {
  EXPECT_FALSE(ChatTemplate::find({.folder = folder_}));
  EXPECT_PRED2(contains, refusal<UserError>([&] { text(); }),
               "(chatml, llama3, qwen, mistral, gemma, phi3, alpaca)");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text({.name = "chatmll"}); }),
               "did you mean 'chatml'");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text({.file = "nowhere.jinja"}); }),
               "there is no file nowhere.jinja");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text({.file = "chatml"}); }),
               "there is no file chatml; a format that skein knows is named by template: chatml");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text({.file = "x", .name = "chatml"}); }),
               "both set");
  write("tokenizer_config.json", R"({"chat_template": [1]})");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text(); }), "neither a text nor a list");
  write("tokenizer_config.json", R"({"chat_template": "\n{% frob %}"})");
  EXPECT_PRED2(contains, refusal<UserError>([&] { text(); }),
               "tokenizer_config.json: chat_template:2: {% frob %}");
}

TEST_F(ChatTemplateFolder, DigestTellsTemplatesApart) {
  const auto digest = [&](const std::string& name) {
    return ChatTemplate::open({.folder = folder_, .name = name}).digest();
  };
  EXPECT_EQ(digest("chatml"), digest("chatml"));
  EXPECT_NE(digest("chatml"), digest("qwen"));
  const auto before = digest("chatml");
  write("tokenizer_config.json", R"({"bos_token": "<b>"})");
  EXPECT_NE(digest("chatml"), before);
}

TEST_F(ChatTemplateFolder, APipeOrADeviceIsNoTemplate) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe.string(), std::string("/dev/null"), folder_.string()}) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { text({.file = file}); }),
                 "chat_template: " + file + " is no regular file");
  }
}

}  // namespace
}  // namespace skein::text
