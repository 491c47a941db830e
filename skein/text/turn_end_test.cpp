// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/turn_end.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/test_tokenizer.h"

namespace skein::text {
namespace {

const Tokenizer& known_tokens() {
  static const auto made = Tokenizer::parse(
      byte_tokenizer_json({"<s>", "</s>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"}),
      "test", {.bos = "<s>", .eos = "</s>"});
  return made;
}

TurnEnd end_of(std::string_view source) {
  const auto chat = ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  return find_turn_end(chat, known_tokens());
}

TEST(TurnEnd, OfTheBuiltIns) {
  const std::pair<const char*, const char*> expected[] = {
      {"chatml", "<|im_end|>"}, {"llama3", "<|eot_id|>"},   {"qwen", "<|im_end|>"},
      {"mistral", "</s>"},      {"gemma", "<end_of_turn>"}, {"phi3", "<|end|>"},
      {"alpaca", "</s>"},
  };
  ASSERT_EQ(std::size(expected), built_in_templates().size());
  for (const auto& [name, token] : expected) {
    SCOPED_TRACE(name);
    const auto end = end_of(built_in_template(name));
    EXPECT_EQ(end.text, token);
    EXPECT_EQ(end.token, known_tokens().id_of(token));
  }
}

TEST(TurnEnd, WhatIsPrintedBehindIt) {
  const auto newline = known_tokens().encode("\n", {.add_special_tokens = false});
  EXPECT_EQ(end_of(built_in_template("chatml")).behind, newline);
  EXPECT_EQ(end_of(built_in_template("chatml")).printed, "<|im_end|>\n");
  EXPECT_TRUE(end_of(built_in_template("llama3")).behind.empty());
  EXPECT_TRUE(end_of("{% for m in messages %}{{ m.content }}[END]\n{% endfor %}").behind.empty());
}

TEST(TurnEnd, AConversationThatGoesOn) {
  const auto chat = ChatTemplate::parse(built_in_template("chatml"), "t");
  const std::vector<Message> messages{{.role = "user", .content = "skein-answer?"}};
  EXPECT_EQ(printed_behind(chat, messages),
            "<|im_end|>\n<|im_start|>user\nskein-answer?<|im_end|>\n<|im_start|>assistant\n");
  const auto strict = ChatTemplate::parse("{{ raise_exception('no') }}", "strict");
  EXPECT_PRED2(contains, refusal<UserError>([&] { printed_behind(strict, messages); }),
               "strict refuses");
}

TEST(TurnEnd, WithBlanksAround) {
  const auto end =
      end_of("{% for m in messages %}{{ m.content ~ ' ' ~ eos_token ~ '\\n' }}{% endfor %}");
  EXPECT_EQ(end.text, "</s>");
  EXPECT_EQ(end.token, known_tokens().eos_id());
}

TEST(TurnEnd, ATextThatIsNoToken) {
  const auto end = end_of("{% for m in messages %}{{ m.content }}[END]\n\n{% endfor %}");
  EXPECT_EQ(end.text, "[END]");
  EXPECT_FALSE(end.token);
}

TEST(TurnEnd, TokensThatTheTokenizerLacks) {
  const auto missing = [](std::string_view source, const std::vector<std::string>& known) {
    const auto chat = ChatTemplate::parse(source, "t", {{"eos_token", "</s>"}});
    return missing_turn_tokens(chat, Tokenizer::parse(byte_tokenizer_json(known), "test", {}));
  };
  using Words = std::vector<std::string>;
  const auto chatml = built_in_template("chatml");
  EXPECT_EQ(missing(chatml, {"</s>"}), (Words{"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(missing(chatml, {"<|im_start|>"}), Words{"<|im_end|>"});
  EXPECT_EQ(missing(chatml, {"<|im_end|>"}), Words()) << "it can stop";
  EXPECT_EQ(missing(built_in_template("gemma"), {}), (Words{"<start_of_turn>", "<end_of_turn>"}));
  EXPECT_EQ(missing(built_in_template("alpaca"), {"</s>"}), Words());
  EXPECT_EQ(missing("{% for m in messages %}<b>{{ m.content }}[END]{% endfor %}", {}), Words());
}

TEST(TurnEnd, NothingWhereNothingIsPrinted) {
  for (const char* source : {"{% for m in messages %}{{ m.content }}\n{% endfor %}",
                             "{{ raise_exception('no') }}", "{{ messages[0].content }}"}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(end_of(source).text, "");
    EXPECT_FALSE(end_of(source).token);
  }
}

TEST(TurnEnd, AnEndTokenThatNobodyNamed) {
  const auto lacks = [](std::string_view source, const std::map<std::string, std::string>& tokens) {
    return lacks_end_token(ChatTemplate::parse(source, "t", tokens));
  };
  for (const char* name : {"alpaca", "mistral"}) {
    EXPECT_TRUE(lacks(built_in_template(name), {{"bos_token", "<s>"}})) << name;
    EXPECT_FALSE(lacks(built_in_template(name), {{"eos_token", "</s>"}})) << name;
  }
  EXPECT_FALSE(lacks(built_in_template("chatml"), {})) << "it has an end of its own";
  EXPECT_FALSE(lacks("{% for m in messages %}{{ m.content }}[END]{{ eos_token }}{% endfor %}", {}));
  EXPECT_TRUE(lacks("{% for m in messages %}{{ m.content + eos_token }}{% endfor %}", {}))
      << "where nothing is printed without";
  EXPECT_FALSE(lacks("{% for m in messages %}{{ m.content }}\n{% endfor %}", {}));
}

}  // namespace
}  // namespace skein::text
