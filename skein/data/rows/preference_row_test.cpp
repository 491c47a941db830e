// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/preference_row.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::data {
namespace {

// "user: U > assistant: A | user: V": what follows > is the answer; "P > C" of plain text.
std::string shown(const Row& row) {
  if (row.kind != Row::Kind::kConversation) return row.text + " > " + row.completion;
  std::string text;
  const auto& messages = row.conversation.messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i > 0) text += i == row.prompt_messages ? " > " : " | ";
    text += messages[i].role + ": " + messages[i].content;
  }
  return text;
}

// In all forms of a row, U stands for what the user says, A and B for the answers.
std::string with_messages(std::string json) {
  const std::pair<const char*, const char*> kShort[] = {
      {"<U>", R"({"role": "user", "content": "U"})"},
      {"<V>", R"({"role": "user", "content": "V"})"},
      {"<S>", R"({"role": "system", "content": "S"})"},
      {"<A>", R"({"role": "assistant", "content": "A"})"},
      {"<B>", R"({"role": "assistant", "content": "B"})"},
      {"<C>", R"({"role": "assistant", "content": "C"})"},
      {"<hU>", R"({"from": "human", "value": "U"})"},
      {"<gA>", R"({"from": "gpt", "value": "A"})"},
      {"<gB>", R"({"from": "gpt", "value": "B"})"},
      {"<none>", R"({"from": "gpt", "value": ""})"},
  };
  for (const auto& [name, message] : kShort) {
    for (size_t at = json.find(name); at != std::string::npos; at = json.find(name)) {
      json.replace(at, std::string_view(name).size(), message);
    }
  }
  return json;
}

std::string pair_refusal(const std::string& json) {
  return refusal<IoError>([&] { parse_preference(with_messages(json)); });
}

std::string feedback_refusal(const std::string& json) {
  return refusal<IoError>([&] { parse_feedback(with_messages(json)); });
}

struct Form {
  const char* json;
  const char* chosen;
  const char* rejected;
};

TEST(PreferenceRow, EveryForm) {
  const char* kA = "user: U > assistant: A";
  const char* kB = "user: U > assistant: B";
  const Form forms[] = {
      // an explicit prompt
      {R"({"prompt": "P", "chosen": "A", "rejected": "B"})", "P > A", "P > B"},
      {R"({"prompt": "", "chosen": "A", "rejected": ""})", " > A", " > "},
      {R"({"prompt": [<U>], "chosen": [<A>], "rejected": [<B>]})", kA, kB},
      {R"({"prompt": [<U>], "chosen": <A>, "rejected": <B>})", kA, kB},
      {R"({"prompt": [<U>], "chosen": "A", "rejected": "B"})", kA, kB},
      {R"({"prompt": <U>, "chosen": "A", "rejected": [<B>]})", kA, kB},
      {R"({"prompt": "U", "chosen": <A>, "rejected": <B>})", kA, kB},
      {R"({"prompt": "U", "chosen": [<A>], "rejected": "B"})", kA, kB},
      {R"({"prompt": [<hU>], "chosen": [<gA>], "rejected": [<gB>]})", kA, kB},
      {R"({"prompt": [<U>], "chosen": [<A>, <V>, <C>], "rejected": [<B>], "system": "S"})",
       "system: S | user: U > assistant: A | user: V | assistant: C",
       "system: S | user: U > assistant: B"},
      {R"({"prompt": [<U>, <C>, <V>], "chosen": "A", "rejected": "B"})",
       "user: U | assistant: C | user: V > assistant: A",
       "user: U | assistant: C | user: V > assistant: B"},
      {R"({"prompt": [<U>, <C>], "chosen": [<V>, <A>], "rejected": [<V>, <B>]})",
       "user: U | assistant: C > user: V | assistant: A",
       "user: U | assistant: C > user: V | assistant: B"},
      // a prompt that is there twice
      {R"({"prompt": "U", "chosen": [<U>, <A>], "rejected": [<U>, <B>]})", kA, kB},
      {R"({"prompt": [<U>], "chosen": [<U>, <A>], "rejected": [<U>, <B>]})", kA, kB},
      {R"({"prompt": "U", "chosen": [<U>, <A>], "rejected": [<U>, <B>],
           "messages": [<U>, <A>]})",
       kA, kB},
      // an implicit one
      {R"({"chosen": [<U>, <A>], "rejected": [<U>, <B>]})", kA, kB},
      {R"({"chosen": [<hU>, <gA>], "rejected": [<hU>, <gB>]})", kA, kB},
      {R"({"chosen": [<S>, <U>, <C>, <V>, <A>], "rejected": [<S>, <U>, <C>, <V>, <B>]})",
       "system: S | user: U | assistant: C | user: V > assistant: A",
       "system: S | user: U | assistant: C | user: V > assistant: B"},
      {R"({"chosen": [<U>, <A>], "rejected": [<U>, <A>]})", kA, kA},
      {R"({"chosen": [<U>, <A>], "rejected": [<U>, <A>, <V>, <B>]})", kA,
       "user: U > assistant: A | user: V | assistant: B"},
      {R"({"chosen": "Q: x A: yes", "rejected": "Q: x A: no"})", "Q: x A: >  yes", "Q: x A: >  no"},
      {R"({"chosen": "Q:yes", "rejected": "Q:no"})", "Q: > yes", "Q: > no"},
      {R"({"chosen": "same", "rejected": "same"})", "sam > e", "sam > e"},
      {R"({"chosen": "Qab", "rejected": "Qa"})", "Q > ab", "Q > a"},
      {R"({"chosen": "Qé", "rejected": "Qè"})", "Q > é", "Q > è"},
      // LLaMA-Factory's
      {R"({"conversations": [<hU>], "chosen": <gA>, "rejected": <gB>})", kA, kB},
      {R"({"conversations": [<hU>], "chosen": "A", "rejected": "B", "system": "S"})",
       "system: S | user: U > assistant: A", "system: S | user: U > assistant: B"},
      {R"({"messages": [<S>, <U>], "chosen": [<A>], "rejected": <B>, "system": "other"})",
       "system: S | user: U > assistant: A", "system: S | user: U > assistant: B"},
      {R"({"instruction": "I", "input": "J", "chosen": "A", "rejected": "B", "output": "x"})",
       "user: I\nJ > assistant: A", "user: I\nJ > assistant: B"},
      {R"({"instruction": "I", "chosen": <gA>, "rejected": <gB>, "system": "S",
           "history": [["q", "a"]]})",
       "system: S | user: q | assistant: a | user: I > assistant: A",
       "system: S | user: q | assistant: a | user: I > assistant: B"},
  };
  for (const auto& [json, chosen, rejected] : forms) {
    const auto row = parse_preference(with_messages(json));
    EXPECT_EQ(shown(row.chosen), chosen) << json;
    EXPECT_EQ(shown(row.rejected), rejected) << json;
    EXPECT_EQ(row.margin, std::nullopt);
  }
}

TEST(PreferenceRow, MarginsAndTools) {
  const auto margin = [](const char* value) {
    return parse_preference(
               fmt::format(R"({{"prompt": "P", "chosen": "A", "rejected": "B", "margin": {}}})",
                           value))
        .margin;
  };
  EXPECT_EQ(margin("0.25"), 0.25);
  EXPECT_EQ(margin("-3"), -3);
  EXPECT_EQ(margin("null"), std::nullopt);
  const auto row = parse_preference(with_messages(
      R"({"messages": [<U>], "chosen": "A", "rejected": "B", "tools": "[{\"name\": \"f\"}]"})"));
  EXPECT_EQ(row.chosen.conversation.tools_json, R"([{"name":"f"}])");
  EXPECT_EQ(row.rejected.conversation.tools_json, R"([{"name":"f"}])");
}

TEST(PreferenceRow, NothingBeforeTheAnswerIsTrainedOn) {
  const auto row = parse_preference(with_messages(
      R"({"prompt": [<U>, {"role": "assistant", "content": "C", "train": true}, <V>],
          "chosen": {"role": "assistant", "content": "A", "train": true}, "rejected": "B"})"));
  EXPECT_EQ(row.chosen.conversation.messages[1].trained, false);
  EXPECT_EQ(row.chosen.conversation.messages[3].trained, true);
}

TEST(PreferenceRow, WrongRowsNameWhatWasExpected) {
  const struct {
    const char* json;
    const char* expected;
  } cases[] = {
      {R"({"question": "q", "chosen": "The sky", "rejected": "The sea"})",
       "the row has \"question\" and no \"prompt\": rename what was asked, `jq -c '.instruction = "
       ".question | del(.question)' OLD.jsonl > NEW.jsonl` (or prompt, which no template is put "
       "around), or drop what is no question, `jq -c 'del(.question)' OLD.jsonl > NEW.jsonl`"},
      {R"({"question": "q", "chosen": [<U>, <A>], "rejected": [<U>, <B>]})",
       "has \"question\" and"},
      {R"({"context": "q", "chosen": <A>, "rejected": <B>})", "has \"context\" and no \"prompt\""},
      {R"({"messages": [<U>, <A>]})", "the row has \"messages\" (stage=sft trains on rows of one"},
      {R"({"question": "q"})", "expected \"chosen\" and \"rejected\""},
      {R"({"question": "q", "response_j": "A", "response_k": "B"})",
       "rename them: `jq -c '.instruction = .question | .chosen = .response_j | .rejected = "
       ".response_k | del(.question, .response_j, .response_k)' OLD.jsonl > NEW.jsonl`"},
      {R"({"prompt": "q", "chosen_response": "A", "rejected_response": "B"})",
       "`jq -c '.chosen = .chosen_response | .rejected = .rejected_response | del("},
      {R"({"instruction": "q", "output": ["A", "B"]})",
       "`jq -c '.chosen = .output[0] | .rejected = .output[1] | del(.output)' OLD"},
      {R"({"prompt": "P", "completion": "C", "label": true})", "with a label: stage=kto trains on"},
      {R"({"messages": [<U>, <A>], "kto_tag": false})", "with a label: stage=kto trains on"},
      {R"({"prompt": "P", "chosen": "A"})", "\"chosen\" and no \"rejected\": stage=kto trains on"},
      {R"({"prompt": "P", "chosen": null, "rejected": "B"})", "\"rejected\" and no \"chosen\""},
      {R"({"prompt": "P", "chosen": 1, "rejected": "B"})",
       "\"chosen\": a text, a message or a list of messages was expected, found a number"},
      {R"({"prompt": 7, "chosen": "A", "rejected": "B"})", "\"prompt\": a text, a message"},
      {R"({"prompt": [<U>], "chosen": [], "rejected": "B"})", "\"chosen\" is empty"},
      {R"({"prompt": [], "chosen": "A", "rejected": "B"})", "\"prompt\" is empty"},
      {R"({"chosen": "A", "rejected": "B"})", "share no beginning that could be their prompt"},
      {R"({"chosen": " A", "rejected": " B"})", "share no beginning"},
      {R"({"chosen": "", "rejected": ""})", "share no beginning"},
      {R"({"chosen": "é", "rejected": "è"})", "share no beginning"},
      {R"({"chosen": [<A>], "rejected": [<B>]})", "share no beginning"},
      {R"({"chosen": <A>, "rejected": <B>})", "share no beginning"},
      {R"({"chosen": "A", "rejected": [<U>, <B>]})", "share no beginning"},
      {R"({"chosen": [<U>, <A>], "rejected": [<V>, <B>]})", "share no beginning"},
      {R"({"chosen": [<U>, <C>, <U>, <A>], "rejected": [<U>, <C>, <V>, <B>]})",
       "differ first in message 3, which is the user's"},
      {R"({"chosen": [<U>, <A>, <V>], "rejected": [<U>, <A>, <V>, <B>]})",
       "differ first in message 3"},
      {R"({"prompt": [<U>], "chosen": [<U>], "rejected": [<B>]})",
       "\"chosen\" has no message of the assistant"},
      {R"({"prompt": [<U>], "chosen": [<A>], "rejected": [<V>, <B>]})",
       "roles out of order: message 2 is the user's"},
      {R"({"prompt": [<U>, <C>], "chosen": "A", "rejected": "B"})",
       "roles out of order: message 3 is the assistant's"},
      {R"({"prompt": "other", "chosen": [<U>, <A>], "rejected": [<U>, <B>]})",
       "\"prompt\" is none of their messages"},
      {R"({"prompt": "P", "chosen": {"role": "gtp", "content": "A"}, "rejected": "B"})",
       "\"chosen\": message 1: its role is \"gtp\""},
      {R"({"prompt": "P", "chosen": "A", "rejected": {"content": "B"}})",
       "\"rejected\": message 1: it has no \"role\""},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B", "system": "S"})",
       "the row has a \"system\" beside a \"prompt\" and answers of plain text"},
      {R"({"chosen": "Qa", "rejected": "Qb", "system": "S"})", "the row has a \"system\" beside"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B", "margin": "much"})",
       "\"margin\" must be a number, found a string"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B", "margin": 1e300})", "too large"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B", "images": ["a.jpg"]})",
       "the row holds images"},
      {R"({"prompt": "P", "chosen": "A", "chosen": "B"})", "the key \"chosen\" occurs twice"},
      {"[1]", "the row is no JSON object"},
      {"{", "invalid JSON"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_PRED2(contains, pair_refusal(json), expected) << json;
  }
}

// A pair of plain texts whose prompt is implicit, with one more column.
std::string pair_with(const std::string& column, const std::string& value) {
  return fmt::format(R"({{"{}": {}, "chosen": "The answer is 4", "rejected": "The answer is 5"}})",
                     column, value);
}

TEST(PreferenceRow, AQuestionThatWouldNotBeReadIsNamed) {
  for (const char* name : {"context", "inputs", "Prompt", "user", "text", "question", "userInput",
                           "prompt_text", "frage", "history"}) {
    EXPECT_PRED2(contains, pair_refusal(pair_with(name, R"("What is 2+2?")")),
                 fmt::format("the row has \"{0}\" and no \"prompt\": rename what was asked, `jq -c "
                             "'.instruction = .{0} | del(.{0})' OLD.jsonl > NEW.jsonl`",
                             name));
  }
  for (const char* list : {"[<U>]", "<hU>", "[<hU>, <gA>]"}) {
    for (const char* name : {"conversation", "verlauf"}) {
      EXPECT_PRED2(contains, pair_refusal(pair_with(name, list)),
                   fmt::format("rename what was asked, `jq -c '.prompt = .{0} | del(.{0})'", name));
    }
  }
  EXPECT_PRED2(contains, pair_refusal(pair_with("context", R"("A page.", "question": "What?")")),
               R"("context" and "question" and no "prompt": rename what was asked, `jq -c )"
               R"('.instruction = .context + "\n" + .question | del(.context, .question)')");
  EXPECT_PRED2(contains, pair_refusal(pair_with("history", R"([["q", "a"]], "query": "What?")")),
               "the row has \"query\" and no \"prompt\": rename what was asked, `jq -c "
               "'.instruction = .query | del(.query)'");
  EXPECT_PRED2(contains, pair_refusal(pair_with("user input", R"("q")")), ".[\"user input\"]");
  EXPECT_PRED2(contains, pair_refusal(pair_with("问题", R"("什么？")")),
               "the row has \"?\" and no \"prompt\": rename what was asked");
  EXPECT_PRED2(contains,
               pair_refusal(pair_with(
                   "task", '"' + std::string(50, 'a') + ' ' + std::string(50, 'b') + '"')),
               "the row has \"task\"");
}

TEST(PreferenceRow, WhatIsSaidAboutARowIsNoQuestion) {
  const char* columns[][2] = {
      {"id", R"("a1b2")"},
      {"source", R"("a set of questions, \nwith answers, that people gave")"},
      {"category", R"("open question answering")"},
      {"score_chosen", "4.5"},
      {"task", R"("summarization of news")"},
      {"prompt_id", R"("77")"},
      {"text", "null"},
      {"context", R"("")"},
      {"history", "[]"},
      {"explanation", R"("Is it not clear that four is right?")"},
      {"models", R"(["a", "b"])"},
      {"hash", R"("0123456789012345678901234567890123456789012345678901234)"
               R"(567890123456789012345678901234567890123456789")"},
      {"margin", "1"},
      {"meta", R"({"prompt": "What is 2+2?"})"}};
  for (const auto& [name, value] : columns) {
    EXPECT_EQ(shown(parse_preference(pair_with(name, value)).chosen), "The answer is >  4") << name;
  }
}

TEST(FeedbackRow, EveryForm) {
  const struct {
    const char* json;
    const char* row;
    bool desirable;
  } forms[] = {
      {R"({"prompt": "P", "completion": "A", "label": true})", "P > A", true},
      {R"({"prompt": "P", "completion": "A", "label": 0})", "P > A", false},
      {R"({"prompt": [<U>], "completion": [<A>], "kto_tag": false})", "user: U > assistant: A",
       false},
      {R"({"messages": [<U>, <C>, <V>, <A>], "label": true})",
       "user: U | assistant: C | user: V > assistant: A", true},
      {R"({"conversations": [<hU>, <gA>], "kto_tag": true, "system": "S"})",
       "system: S | user: U > assistant: A", true},
      {R"({"instruction": "I", "output": "A", "kto_tag": 1})", "user: I > assistant: A", true},
      {R"({"label": null, "kto_tag": false, "prompt": "P", "completion": ""})", "P > ", false},
      {R"({"label": 1, "kto_tag": true, "prompt": "P", "completion": "A"})", "P > A", true},
      // one of two answers is empty
      {R"({"prompt": "P", "chosen": "A", "rejected": ""})", "P > A", true},
      {R"({"prompt": "P", "chosen": "", "rejected": "B"})", "P > B", false},
      {R"({"prompt": "P", "rejected": "B"})", "P > B", false},
      {R"({"conversations": [<hU>], "chosen": <none>, "rejected": <gB>})", "user: U > assistant: B",
       false},
      {R"({"conversations": [<hU>], "chosen": [<gA>], "rejected": [], "system": "S"})",
       "system: S | user: U > assistant: A", true},
      {R"({"prompt": "U", "chosen": <A>})", "user: U > assistant: A", true},
      {R"({"instruction": "I", "chosen": "A", "rejected": null})", "user: I > assistant: A", true},
  };
  for (const auto& [json, row, desirable] : forms) {
    const auto found = parse_feedback(with_messages(json));
    EXPECT_EQ(shown(found.row), row) << json;
    EXPECT_EQ(found.desirable, desirable) << json;
  }
}

TEST(FeedbackRow, WrongRowsNameWhatWasExpected) {
  const struct {
    const char* json;
    const char* expected;
  } cases[] = {
      {R"({"prompt": "P", "completion": "A"})", "expected \"label\" (or \"kto_tag\": true, false)"},
      {R"({"prompt": "P", "completion": "A"})",
       "(stage=sft trains on rows that nobody has judged)"},
      {R"({"prompt": "P", "completion": "A", "label": "good"})",
       "must be true or false, found a string"},
      {R"({"prompt": "P", "completion": "A", "label": 2})", "true or false, found another number"},
      {R"({"prompt": "P", "completion": "A", "label": true, "kto_tag": false})",
       "\"label\" is true and \"kto_tag\" false: drop the one that is wrong, as `jq -c "
       "'del(.kto_tag)"},
      {R"({"prompt": "P", "completion": "A", "label": 0, "kto_tag": "no"})", "found a string"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "", "label": true})",
       "a label beside \"chosen\", which says so already: drop it, as `jq -c 'del(.label, "
       ".kto_tag)"},
      {R"({"instruction": "q", "response": "a", "label": true})",
       "rename them: jq -c '.output = .response | del(.response)' OLD"},
      {R"({"prompt": [<U>], "response": [<A>], "label": true})",
       "rename it: jq -c '.completion = .response | del(.response)' OLD"},
      {R"({"text": "T", "label": true})", "\"text\" has no prompt"},
      {R"({"messages": [<U>, <A>, <V>], "label": true})",
       "the last message is the user's: the assistant's was expected"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B"})",
       "the row holds preferences (two answers): stage=dpo or stage=rm"},
      {R"({"prompt": "P", "chosen": "A", "rejected": "B", "label": true})",
       "the row holds preferences"},
      {R"({"prompt": "P", "chosen": "", "rejected": []})", "are empty: there is no answer"},
      {R"({"chosen": "A", "rejected": ""})", "\"chosen\" has no prompt"},
      {R"({"prompt": "P", "chosen": "A", "system": "S"})", "the row has a \"system\" beside"},
      {R"({"question": "q", "label": true})", "expected \"messages\""},
      {R"({"prompt": "P", "completion": "A", "label": true, "image": "a.jpg"})", "holds an image"},
      {R"({"label": true, "label": false})", "the key \"label\" occurs twice"},
      {"7", "the row is no JSON object"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_PRED2(contains, feedback_refusal(json), expected) << json;
  }
}

TEST(PreferenceRow, HostileRowsAreRefusedInBoundedTimeAndMemory) {
  std::string deep = R"({"prompt": "P", "chosen": )" + std::string(60, '[') + std::string(60, ']') +
                     R"(, "rejected": "B"})";
  EXPECT_NE(pair_refusal(deep), "");
  EXPECT_EQ(feedback_refusal(deep), "") << "an empty answer, however deep";
  std::string long_text(1 << 20, 'a');
  const auto row = parse_preference(R"({"chosen": ")" + long_text + R"(b", "rejected": ")" +
                                    long_text + R"(c"})");
  EXPECT_EQ(row.chosen.text, long_text);
}

}  // namespace
}  // namespace skein::data
