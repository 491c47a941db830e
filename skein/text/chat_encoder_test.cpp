// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_encoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/test_tokenizer.h"

namespace skein::text {
namespace {

const std::map<std::string, std::string> kEnds = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

// Bytes, <s>, </s>, <|im_start|> and <|im_end|>; <s> is put before a text.
const Tokenizer& tokenizer() {
  static const auto made = [] {
    auto json =
        nlohmann::json::parse(byte_tokenizer_json({"<s>", "</s>", "<|im_start|>", "<|im_end|>"}));
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair",
         {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1000}}, {"tokens", {"<s>"}}}}}}};
    return Tokenizer::parse(json.dump(), "test", {.bos = "<s>", .eos = "</s>"});
  }();
  return made;
}

ChatTemplate chat(std::string_view source) { return ChatTemplate::parse(source, "t", kEnds); }

// The trained parts of the text, each ended by "|".
std::string trained_text(const MaskedTokens& tokens) {
  EXPECT_EQ(tokens.ids.size(), tokens.trained.size());
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.trained[i])
      text += tokenizer().bytes_of(static_cast<uint32_t>(tokens.ids[i]));
    else if (i > 0 && tokens.trained[i - 1])
      text += "|";
  }
  return text;
}

std::string trained_text(const ChatTemplate& chat_template, const Conversation& conversation,
                         TrainedTurns turns = TrainedTurns::kAssistant) {
  return trained_text(ChatEncoder(tokenizer(), chat_template, turns).encode(conversation));
}

Conversation two_turns() {
  return {.messages = {{.role = "user", .content = "Hi"},
                       {.role = "assistant", .content = "A 😀"},
                       {.role = "user", .content = "Bye"},
                       {.role = "assistant", .content = "B"}}};
}

// ChatML as models ship it: nothing is marked.
constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(ChatEncoder, TrainsWhatTheTemplateMarks) {
  const auto marked = chat(built_in_template("chatml"));
  EXPECT_EQ(trained_text(marked, two_turns()), "A 😀<|im_end|>\n|B<|im_end|>\n");
  EXPECT_EQ(trained_text(marked, two_turns(), TrainedTurns::kLast), "B<|im_end|>\n");
  const auto all = ChatEncoder(tokenizer(), marked, TrainedTurns::kAll).encode(two_turns());
  EXPECT_EQ(std::ranges::count(all.trained, 1), static_cast<int64_t>(all.ids.size()));
}

TEST(ChatEncoder, FindsUnmarkedTurnsByTheirPrefix) {
  const auto plain = chat(kPlain);
  EXPECT_EQ(trained_text(plain, two_turns()), "A 😀<|im_end|>\n|B<|im_end|>\n");
  EXPECT_EQ(trained_text(plain, two_turns(), TrainedTurns::kLast), "B<|im_end|>\n");
}

// A model that ships with a format, and `template: NAME` for one that does not, learn the same.
TEST(ChatEncoder, MarksOfTheBuiltInsAreWhatTheirPrefixesSay) {
  for (const auto& name : built_in_templates()) {
    SCOPED_TRACE(name);
    std::string unmarked(built_in_template(name));
    for (const std::string_view tag : {"{% generation %}", "{% endgeneration %}"}) {
      ASSERT_NE(unmarked.find(tag), std::string::npos);
      unmarked.erase(unmarked.find(tag), tag.size());
    }
    EXPECT_EQ(trained_text(chat(built_in_template(name)), two_turns()),
              trained_text(chat(unmarked), two_turns()));
  }
}

TEST(ChatEncoder, AMessagesOwnWordWins) {
  auto conversation = two_turns();
  conversation.messages[1].trained = false;
  for (const char* source : {kPlain, built_in_template("chatml").data()}) {
    EXPECT_EQ(trained_text(chat(source), conversation).substr(0, 11), "B<|im_end|>") << source;
  }
  conversation.messages[2].trained = true;
  EXPECT_EQ(trained_text(chat(kPlain), conversation),
            "<|im_start|>user\nBye<|im_end|>\n|B<|im_end|>\n");
  EXPECT_EQ(trained_text(chat(built_in_template("chatml")), conversation),
            "<|im_start|>user\nBye<|im_end|>\n|B<|im_end|>\n");
  conversation = two_turns();
  conversation.messages[3].trained = false;
  EXPECT_EQ(trained_text(chat(kPlain), conversation, TrainedTurns::kAll),
            "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nA 😀<|im_end|>\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n|");
}

TEST(ChatEncoder, ATemplateThatFailsThePrefixCheckIsRefusedWithTheMessage) {
  // Qwen 3 and its like: earlier turns lose what the last one shows.
  const auto forgets = chat(
      "{% for m in messages %}<{{ m.role }}>{{ 'think ' if loop.last }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto why = [&](TrainedTurns turns) {
    return refusal<UserError>([&] { trained_text(forgets, two_turns(), turns); });
  };
  EXPECT_PRED2(contains, why(TrainedTurns::kAssistant), "t: the text of message 2 (assistant)");
  EXPECT_PRED2(contains, why(TrainedTurns::kAssistant), "mask_history: true");
  const auto other_prompt = chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<bot>{% endif %}");
  EXPECT_PRED2(contains, refusal<UserError>([&] { trained_text(other_prompt, two_turns()); }),
               "message 2 (assistant) depends on what comes before it");
}

TEST(ChatEncoder, HasOneBosAtMost) {
  const auto first_ids = [](const ChatTemplate& chat_template) {
    const auto tokens =
        ChatEncoder(tokenizer(), chat_template, TrainedTurns::kAssistant).encode(two_turns());
    return std::vector<int32_t>(tokens.ids.begin(), tokens.ids.begin() + 2);
  };
  EXPECT_EQ(first_ids(chat(kPlain)), (std::vector<int32_t>{1000, 1002}));
  EXPECT_EQ(first_ids(chat(std::string("{{ bos_token }}") + kPlain)),
            (std::vector<int32_t>{1000, 1002}));
  EXPECT_EQ(first_ids(chat(built_in_template("chatml")))[0], 1002);
}

TEST(ChatEncoder, OfACompletionTrainsTheCompletionAndTheEnd) {
  const ChatEncoder encoder(tokenizer(), chat(kPlain), TrainedTurns::kAssistant);
  const auto tokens = encoder.encode_completion("Q: a\n", "the");
  EXPECT_EQ(tokens.ids.front(), 1000);
  EXPECT_EQ(tokens.ids.back(), 1001);
  EXPECT_EQ(trained_text(tokens), "the</s>");
  EXPECT_EQ(encoder.encode_completion("Q", "A</s>").ids.size(), 4U);
  EXPECT_EQ(encoder.encode_completion("<s>Q", "A").ids.size(), 4U);
  const ChatEncoder all(tokenizer(), chat(kPlain), TrainedTurns::kAll);
  EXPECT_EQ(trained_text(all.encode_completion("Q", "A")), "QA</s>");
}

uint32_t empty_turns(std::string_view source, const Conversation& conversation,
                     TrainedTurns turns = TrainedTurns::kAssistant) {
  return ChatEncoder(tokenizer(), chat(source), turns).encode(conversation).empty_turns;
}

TEST(ChatEncoder, CountsTurnsThatRenderToNothing) {
  auto conversation = two_turns();
  for (const char* source : {kPlain, built_in_template("chatml").data()}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(empty_turns(source, two_turns()), 0U);
    conversation.messages[1].content = " \n";
    conversation.messages[3].content = "";
    EXPECT_EQ(empty_turns(source, conversation), 2U);
    EXPECT_EQ(empty_turns(source, conversation, TrainedTurns::kLast), 1U);
    EXPECT_EQ(empty_turns(source, conversation, TrainedTurns::kAll), 2U);
    conversation.messages[1].trained = false;
    EXPECT_EQ(empty_turns(source, conversation), 1U) << "nobody learns from the other";
    conversation.messages[1].trained.reset();
  }
  const ChatEncoder encoder(tokenizer(), chat(kPlain), TrainedTurns::kAssistant);
  EXPECT_EQ(encoder.encode_completion("Q", " ").empty_turns, 1U);
  EXPECT_EQ(encoder.encode_completion("Q", "A").empty_turns, 0U);
}

TEST(ChatEncoder, CountsWhatATemplateLeavesOut) {
  // Prints a block of thoughts in any case, as Qwen 3's does for its last turn.
  constexpr const char* kThinks =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n\n"
      "</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  auto conversation = two_turns();
  conversation.messages[3] = {
      .role = "assistant",
      .content = "",
      .trained = {},
      .extra_json = R"({"tool_calls": [{"type": "function", "function": {"name": "look_up"}}]})"};
  EXPECT_EQ(empty_turns(kPlain, conversation), 1U);
  EXPECT_EQ(empty_turns(kThinks, conversation), 1U);
  conversation.messages[3].content = "One moment.";
  EXPECT_EQ(empty_turns(kPlain, conversation), 1U) << "the call is lost";
  EXPECT_EQ(empty_turns(kPlain, conversation, TrainedTurns::kAll), 1U);
  constexpr const char* kCalls =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls "
      "%}"
      "{{ call.function.name }}{% endfor %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  EXPECT_EQ(empty_turns(kCalls, conversation), 0U);
  conversation.messages[3].content = "";
  EXPECT_EQ(empty_turns(kCalls, conversation), 0U);
}

TEST(ChatEncoder, RefusesWhatItCannotTrain) {
  EXPECT_EQ(refusal<UserError>([] { trained_text(chat(kPlain), {}); }),
            "a conversation without messages");
  Conversation many;
  for (int i = 0; i < 3000; ++i) {
    many.messages.push_back({.role = i % 2 ? "assistant" : "user", .content = "x"});
  }
  EXPECT_PRED2(contains, refusal<UserError>([&] { trained_text(chat(kPlain), many); }),
               "3000 messages are too many");
  EXPECT_EQ(trained_text(chat(built_in_template("chatml")), many).substr(0, 13), "x<|im_end|>\n|");
}

}  // namespace
}  // namespace skein::text
