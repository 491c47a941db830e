// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_history.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/test_tokenizer.h"

namespace skein::text {
namespace {

constexpr size_t kMany = 1000;

class History : public testing::Test {
 protected:
  std::string text_of(const ChatPrompt& prompt) const { return tokenizer.decode(prompt.ids); }

  Tokenizer tokenizer = Tokenizer::parse(byte_tokenizer_json({"<u>", "<a>", "<s>"}), "test");
  ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
      "<{{ m.role[0] }}>{{ m.content }}{{ mark }}{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}",
      "t");
};

TEST_F(History, GrowsAndIsForgotten) {
  ChatHistory history(tokenizer, chat, {.system = "Be brief.", .variables_json = ""});
  EXPECT_EQ(text_of(history.ask("1+1?", kMany)), "<s>Be brief.<u>1+1?<a>");
  history.answer("2");
  EXPECT_EQ(text_of(history.ask("更?", kMany)), "<s>Be brief.<u>1+1?<a>2<u>更?<a>");
  history.answer("3");
  history.reset();
  EXPECT_EQ(text_of(history.ask("x", kMany)), "<s>Be brief.<u>x<a>");
}

TEST_F(History, TheTemplateSeesVariables) {
  ChatHistory history(tokenizer, chat, {.system = "", .variables_json = R"({"mark": "!"})"});
  EXPECT_EQ(text_of(history.ask("x", kMany)), "<u>x!<a>");
}

TEST_F(History, DropsTheOldestTurnsAndKeepsTheSystemMessage) {
  ChatHistory history(tokenizer, chat, {.system = "S", .variables_json = ""});
  for (const char* question : {"aa", "bb", "cc"}) {
    EXPECT_EQ(history.ask(question, kMany).num_dropped, 0U);
    history.answer("x");
  }
  // <s>S, three turns of <u>..<a>x, and <u>dd<a>: 2 + 3 * 5 + 4
  const auto fitting = history.ask("dd", 21);
  EXPECT_EQ(fitting.num_dropped, 0U);
  history.answer("x");
  const auto shortened = history.ask("ee", 16);
  EXPECT_EQ(text_of(shortened), "<s>S<u>cc<a>x<u>dd<a>x<u>ee<a>");
  EXPECT_EQ(shortened.num_dropped, 2U);
  history.answer("x");
  EXPECT_EQ(text_of(history.ask("ff", kMany)), "<s>S<u>cc<a>x<u>dd<a>x<u>ee<a>x<u>ff<a>");
}

TEST_F(History, AQuestionThatIsTooLongChangesNothing) {
  ChatHistory history(tokenizer, chat, {.system = "S", .variables_json = ""});
  history.ask("aa", kMany);
  history.answer("x");
  EXPECT_EQ(refusal<UserError>([&] { history.ask("0123456789", 9); }),
            "the question with the system message has 14 tokens, and there is room for 9");
  EXPECT_EQ(text_of(history.ask("b", kMany)), "<s>S<u>aa<a>x<u>b<a>");
}

}  // namespace
}  // namespace skein::text
