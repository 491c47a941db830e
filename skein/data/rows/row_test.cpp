// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/rows/row_columns.h"

namespace skein::data {
namespace {

// "system: S | user: U | assistant: A".
std::string shown(const Row& row) {
  EXPECT_EQ(row.kind, Row::Kind::kConversation);
  std::string text;
  for (const auto& message : row.conversation.messages) {
    text += (text.empty() ? "" : " | ") + message.role + ": " + message.content;
  }
  return text;
}

std::string refusal_of(std::string_view json) {
  return refusal<IoError>([&] { parse_row(json); });
}

TEST(Row, Messages) {
  const auto row = parse_row(
      R"({"id": 7, "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
          {"role": "assistant", "content": "A"}], "prompt": "not this"})");
  EXPECT_EQ(shown(row), "system: S | user: U | assistant: A");
  EXPECT_EQ(row.prompt_messages, 0u);
  EXPECT_EQ(row.conversation.tools_json, "");
}

TEST(Row, ShareGpt) {
  const auto row = parse_row(
      R"({"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"},
          {"from": "human", "value": "V"}, {"from": "gpt", "value": "B"}], "system": "S",
          "messages": null})");
  EXPECT_EQ(shown(row), "system: S | user: U | assistant: A | user: V | assistant: B");
  const auto own = parse_row(
      R"({"system": "other", "conversations": [{"from": "system", "value": "S"},
          {"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}]})");
  EXPECT_EQ(shown(own), "system: S | user: U | assistant: A") << "its own wins";
  EXPECT_PRED2(contains,
               refusal_of(R"({"system": "S", "conversations": [{"from": "gpt", "value": "A"}]})"),
               "message 1 is the assistant's")
      << "as the row counts them";
}

TEST(Row, FunctionCallsOfShareGptAreToolCalls) {
  const auto row = parse_row(
      R"({"conversations": [{"from": "human", "value": "U"},
          {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": 2}}"},
          {"from": "observation", "value": "42"}, {"from": "gpt", "value": "A"}],
          "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(shown(row), "user: U | assistant:  | tool: 42 | assistant: A");
  EXPECT_EQ(
      row.conversation.messages[1].extra_json,
      R"({"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}}]})")
      << "in the order of the row";
  EXPECT_EQ(row.conversation.tools_json, R"([{"name":"f"}])");
  EXPECT_PRED2(contains, refusal_of(R"({"conversations": [{"from": "human", "value": "U"},
                             {"from": "function_call", "value": "call f"}]})"),
               "message 2: a function_call must be JSON text");
}

TEST(Row, Alpaca) {
  EXPECT_EQ(shown(parse_row(R"({"instruction": "I", "input": "J", "output": "O"})")),
            "user: I\nJ | assistant: O");
  EXPECT_EQ(shown(parse_row(R"({"instruction": "I", "input": "", "output": "O"})")),
            "user: I | assistant: O");
  EXPECT_EQ(shown(parse_row(R"({"instruction": "I", "output": "O", "system": "S",
                                "history": [["q", "a"], ["r", "b"]]})")),
            "system: S | user: q | assistant: a | user: r | assistant: b | user: I | assistant: O");
  EXPECT_PRED2(contains, refusal_of(R"({"instruction": "I", "output": "O", "history": [["q"]]})"),
               "\"history\" must be a list of [question, answer]");
}

TEST(Row, PromptAndCompletion) {
  const auto row = parse_row(R"({"prompt": "P", "completion": "C"})");
  EXPECT_EQ(row.kind, Row::Kind::kPromptCompletion);
  EXPECT_EQ(row.text, "P");
  EXPECT_EQ(row.completion, "C");
  const auto lists = parse_row(
      R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "P"}],
          "completion": [{"role": "assistant", "content": "C"}]})");
  EXPECT_EQ(shown(lists), "system: S | user: P | assistant: C");
  EXPECT_EQ(lists.prompt_messages, 2u);
  const auto opened = parse_row(
      R"({"prompt": [{"role": "user", "content": "P"}], "system": "S",
          "completion": [{"role": "assistant", "content": "C"}]})");
  EXPECT_EQ(shown(opened), "system: S | user: P | assistant: C");
  EXPECT_EQ(opened.prompt_messages, 2u) << "it is part of the prompt";
  const auto own = parse_row(
      R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "P"}],
          "system": "other", "completion": [{"role": "assistant", "content": "C"}]})");
  EXPECT_EQ(shown(own), "system: S | user: P | assistant: C");
  EXPECT_EQ(own.prompt_messages, 2u);
  EXPECT_PRED2(contains,
               refusal_of(R"({"prompt": [{"role": "user", "content": "P"}], "completion": "C"})"),
               "must both be strings or both lists of messages, found a list and a string");
}

TEST(Row, Text) {
  const auto row = parse_row(R"({"text": "T", "meta": {"a": [1]}})");
  EXPECT_EQ(row.kind, Row::Kind::kText);
  EXPECT_EQ(row.text, "T");
  EXPECT_PRED2(contains, refusal_of(R"({"text": 3})"), "\"text\" must be a string, found a number");
}

TEST(Row, PlainTextHasNoPlaceForASystem) {
  for (const char* columns : {R"("prompt": "P", "completion": "C")", R"("text": "T")"}) {
    const auto with = [&](const char* system) {
      return fmt::format(R"({{{}, "system": {}}})", columns, system);
    };
    EXPECT_PRED2(contains, refusal_of(with("\"S\"")), "the row has a \"system\" beside");
    EXPECT_EQ(refusal_of(with("\"\"")), "");
    EXPECT_EQ(refusal_of(with("null")), "");
  }
}

TEST(Row, PartsAndFlagsAndOtherFieldsOfAMessage) {
  const auto row = parse_row(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "U"}, "V"], "name": "n"},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}], "train": false},
          {"role": "tool", "content": "r", "tool_call_id": "1", "name": null},
          {"role": "assistant", "content": "A", "weight": 1}], "tools": []})");
  EXPECT_EQ(shown(row), "user: UV | assistant:  | tool: r | assistant: A");
  const auto& messages = row.conversation.messages;
  EXPECT_EQ(messages[0].extra_json, R"({"name":"n"})");
  EXPECT_EQ(messages[0].trained, std::nullopt);
  EXPECT_EQ(messages[1].extra_json, R"({"tool_calls":[{"id":"1"}],"content":null})")
      << "none, as a template of transformers sees it";
  EXPECT_EQ(messages[1].trained, false);
  EXPECT_EQ(messages[2].extra_json, R"({"tool_call_id":"1"})");
  EXPECT_EQ(messages[3].trained, true);
  EXPECT_EQ(row.conversation.tools_json, "") << "an empty list is none";
}

TEST(Row, WrongSchemasNameWhatWasExpected) {
  const struct {
    const char* json;
    const char* expected;
  } cases[] = {
      {R"({"question": "q", "answer": "a"})", "the row has \"question\", \"answer\""},
      {R"({"instruction": "q"})", "\"instruction\" and \"output\", or \"text\"; the row has"},
      {R"({"question": "q", "answer": "a"})",
       "rename them: jq -c '.instruction = .question | .output = .answer | del(.question, "
       ".answer)' OLD.jsonl > NEW.jsonl (or prompt and completion"},
      {R"({"id": 1, "prompt": "q", "response": "a"})",
       "jq -c '.instruction = .prompt | .output = .response | del(.prompt, .response)' OLD"},
      {R"({"instruction": "q", "response": "a", "input": "b"})",
       "jq -c '.output = .response | del(.response)' OLD"},
      {R"({"dialogue": []})", "rename it: jq -c '.messages = .dialogue | del(.dialogue)' OLD"},
      {R"({"title": "t", "content": "c"})", "jq -c '.text = .content | del(.content)' OLD"},
      {R"({"a": 1, "b": 2})", "the row has \"a\", \"b\"; rename them to one of these"},
      {R"({"instruction": "q", "output": null})", "\"output\"; null is absent"},
      {"{}", "the row has no column"},
      {"[1]", "the row is no JSON object"},
      {R"({"messages": "hello"})", "\"messages\" must be a list of messages, found a string"},
      {R"({"messages": []})", "\"messages\" is empty: no message to train on"},
      {R"({"conversations": []})", "\"conversations\" is empty"},
      {R"({"messages": ["hello"]})", "message 1: expected an object such as"},
      {R"({"messages": [{"content": "x"}]})", "message 1: it has no \"role\""},
      {R"({"messages": [{"role": "user"}]})", "message 1: it has no \"content\""},
      {R"({"messages": [{"role": "user", "content": 1}]})", "must be a string, found a number"},
      {R"({"messages": [{"role": "narrator", "content": "x"}]})",
       "its role is \"narrator\"; known"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "a part of type \"image_url\"; only text"},
      {R"({"messages": [{"role": "user", "content": "x", "weight": 0.5}]})", "must be 0 or 1"},
      {R"({"messages": [{"role": "user", "content": "x", "train": 1}]})", "must be true or false"},
      {R"({"prompt": "p", "chosen": "c", "rejected": "r"})", "the row holds preferences"},
      {R"({"prompt": "p", "completion": "c", "label": false})", "which stage=kto trains on"},
      {R"({"instruction": "i", "output": "o", "kto_tag": 1})", "was judged (\"kto_tag\")"},
      {R"({"image": "a.jpg", "conversations": []})", "the row holds an image"},
      {R"({"text": "a", "text": "b"})", "the key \"text\" occurs twice"},
      {R"({"messages": [{"role": "user", "role": "gpt"}]})", "the key \"role\" occurs twice"},
      {R"({"text": "a")", "invalid JSON at byte 13 of the row"},
      {"{\"text\": \"\xFF\"}", "invalid UTF-8 at byte"},
      {R"({"tools": "[", "messages": [{"role": "user", "content": "x"}]})", "but no JSON"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_PRED2(contains, refusal_of(json), expected) << json;
  }
  EXPECT_EQ(parse_row(R"({"images": [], "text": "a"})").text, "a") << "an empty list is none";
}

TEST(Row, RolesOutOfOrderAreNamed) {
  const auto of_roles = [](std::initializer_list<const char*> roles) {
    std::string list;
    for (const char* role : roles) {
      list += std::string(list.empty() ? "" : ",") + R"({"role":")" + role + R"(","content":"x"})";
    }
    return refusal_of(R"({"messages":[)" + list + "]}");
  };
  EXPECT_EQ(of_roles({"user", "assistant"}), "");
  EXPECT_EQ(of_roles({"system", "user", "assistant", "tool", "tool", "assistant", "user"}), "");
  EXPECT_PRED2(contains, of_roles({"assistant", "user"}),
               "message 1 is the assistant's, at the start the system or the user was expected");
  EXPECT_PRED2(contains, of_roles({"user", "user", "assistant"}),
               "message 2 is the user's, after the user's the assistant was expected");
  EXPECT_PRED2(contains, of_roles({"user", "assistant", "assistant"}), "message 3");
  EXPECT_PRED2(contains, of_roles({"user", "system", "assistant"}), "message 2 is the system's");
  EXPECT_PRED2(contains, of_roles({"user", "tool", "assistant"}), "message 2 is the tool's");
  EXPECT_PRED2(contains, of_roles({"system", "user"}), "no message is the assistant's");
}

TEST(Row, HostileRowsAreRefusedInBoundedTimeAndMemory) {
  std::string keys = R"({"messages": [{"role": "user", "content": "x")";
  for (int i = 0; i < 300'000; ++i) keys += ",\"k" + std::to_string(i) + "\": 1";
  EXPECT_PRED2(contains, refusal_of(keys + "}]}"), "no message is the assistant's")
      << "linear in the number of keys";
  std::string many = "{\"messages\": [";
  for (size_t i = 0; i <= kMaxRowValues; ++i) many += "[],";
  EXPECT_PRED2(contains, refusal_of(many + "[]]}"), "more than 1048576 values");
  std::string ignored = "{\"other\": [";
  for (size_t i = 0; i <= kMaxRowValues; ++i) ignored += "[],";
  EXPECT_EQ(refusal_of(ignored + R"([]], "text": "x"})"), "") << "no tree of other columns";
  EXPECT_PRED2(contains, refusal_of("{\"text\": " + std::string(100, '[')),
               "nested deeper than 64");
  EXPECT_PRED2(contains, refusal_of("{\"\x1b[31m\": 1}"), "invalid JSON");
  EXPECT_PRED2(contains, refusal_of(R"({"\u001b[31m": 1, "a\"b": 2})"), "the row has \"?\", \"?\"")
      << "nothing that a terminal would obey";
}

TEST(Row, AConversationNeedNotBeAnswered) {
  const auto shown_of = [](std::string_view json) {
    return shown({.kind = Row::Kind::kConversation,
                  .text = {},
                  .completion = {},
                  .conversation = parse_conversation(json)});
  };
  const auto refused = [](std::string_view json) {
    return refusal<IoError>([&] { parse_conversation(json); });
  };
  EXPECT_EQ(shown_of(R"( [{"role": "user", "content": "U"}])"), "user: U");
  EXPECT_EQ(shown_of(R"({"conversations": [{"from": "human", "value": "U"}], "system": "S"})"),
            "system: S | user: U");
  EXPECT_EQ(parse_conversation(R"({"messages": [{"role": "user", "content": "U", "weight": 0}],
                                   "tools": "[{\"name\": \"f\"}]"})")
                .tools_json,
            R"([{"name":"f"}])");
  EXPECT_PRED2(contains, refused(R"([{"role": "visitor", "content": "U"}])"),
               "message 1: its role is \"visitor\"");
  for (const char* name : {"User", "USER", "usre"}) {
    EXPECT_PRED2(contains, refused(fmt::format(R"([{{"role": "{}", "content": "U"}}])", name)),
                 fmt::format("its role is \"{}\"; did you mean 'user'? Known are", name));
  }
  EXPECT_PRED2(contains, refused(R"({"text": "t"})"), "expected a list of messages");
  EXPECT_PRED2(contains, refused("[]"), "no message");
  EXPECT_NE(refused("7"), "");
  EXPECT_NE(refused(""), "");
}

}  // namespace
}  // namespace skein::data
