// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What docs/rewards.md has no example of: specs that are refused, rows that cannot be meant so,
// hostile completions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/rewards/bounded_regex.h"
#include "skein/rewards/reward.h"

namespace skein::rewards {
namespace {

std::optional<double> judged(const std::string& spec, Completion completion) {
  return make_reward(spec)->score({&completion, 1}).at(0);
}

std::string refused(const std::string& spec) {
  return refusal<UserError>([&] { make_reward(spec); });
}

TEST(MakeReward, UnknownWordsAreRefusedWithSuggestions) {
  EXPECT_EQ(refused("acuracy"), "unknown reward 'acuracy'; did you mean 'accuracy'?");
  EXPECT_PRED2(contains, refused("qqqqqqqq"), "built in are regex, accuracy, answer");
  EXPECT_EQ(refused("accuracy:colum=x"),
            "the reward 'accuracy:colum=x': unknown argument 'colum'; did you mean 'column'?");
  EXPECT_EQ(refused("overlong:512"), "the reward 'overlong:512': buffer is missing");
  EXPECT_EQ(refused("overlong:512,1k"),
            "the reward 'overlong:512,1k': buffer is '1k', expected a whole number from 0");
  EXPECT_EQ(refused("format:x"), "the reward 'format:x': it takes no argument 'x'");
}

TEST(MakeReward, WhatCannotBeMeant) {
  for (const std::string spec :
       {"", ":", "regex", "regex:", "regex:(", "length", "length:5,3", "length:1,2,3,4",
        "overlong:5,6", "overlong:-1,0", "overlong:1,99999999999999999999", "accuracy:a,b,c",
        "accuracy:column=a,column=b", "accuracy:as=maybe", "accuracy:column=", "accuracy:a,",
        "accuracy:,a", "json:schema=a,column=b"}) {
    EXPECT_NE(refused(spec), "") << spec;
  }
  EXPECT_NE(refusal<IoError>([] { make_reward("json:/no/such/schema.json"); }), "");
  EXPECT_NE(refused("regex:" + std::string(20'000, 'a')), "");
}

TEST(MakeReward, NamesOfOtherTools) {
  EXPECT_EQ(make_reward("accuracy_reward")->name(), "accuracy");
  EXPECT_EQ(make_reward("think_format_reward")->name(), "think_format");
}

TEST(Rows, NoColumnIsNoOpinionAndNoRowHasNone) {
  EXPECT_EQ(judged("accuracy", {.text = "5", .row = R"({"question": "?"})"}), std::nullopt);
  EXPECT_EQ(judged("accuracy", {.text = "5", .row = R"({"answer": null})"}), std::nullopt);
  EXPECT_EQ(judged("accuracy", {.text = "5"}), std::nullopt);
  EXPECT_EQ(judged("arithmetic", {.text = "5", .row = R"({"nums": [5]})"}), std::nullopt);
  EXPECT_EQ(judged("json:column=schema", {.text = "5", .row = "{}"}), std::nullopt);
}

TEST(Rows, WhatCannotBeMeantIsRefusedWithItsSample) {
  const auto why = [](const std::string& spec, const std::string& row) {
    return refusal<UserError>(
        [&] { judged(spec, {.text = "5", .row = row, .sample = 17, .generation = 3}); });
  };
  const std::string deep = R"({"answer": )" + std::string(100, '[') + std::string(100, ']') + "}";
  for (const std::string& row :
       {std::string("[]"), std::string("{"), std::string("{}{}"), std::string("{\"a\": NaN}"),
        std::string("{\"a\":1,\"a\":2}"), std::string("\xff"), deep}) {
    EXPECT_PRED2(contains, why("accuracy", row), "the row of sample 17, generation 3") << row;
  }
  EXPECT_PRED2(contains, why("accuracy", R"({"answer": {"a": 1}})"), "sample 17, generation 3");
  EXPECT_PRED2(contains, why("accuracy", R"({"answer": []})"), "sample 17, generation 3");
  EXPECT_PRED2(contains, why("accuracy:as=number", R"({"answer": "five"})"),
               "its row's answer 'five' is no number");
  EXPECT_PRED2(contains, why("arithmetic", R"({"nums": 5, "target": 5})"), "no list");
  EXPECT_PRED2(contains, why("arithmetic", R"({"nums": ["a"], "target": 5})"), "no number");
  EXPECT_PRED2(contains, why("json:column=s", R"({"s": {"type": "strng"}})"),
               "sample 17, generation 3: s: type: unknown type");
}

TEST(Rows, ParsedOnceForNeighboursAndAgainForOthers) {
  const auto reward = make_reward("accuracy");
  const std::vector<Completion> completions = {{.text = "1", .row = R"({"answer": 1})"},
                                               {.text = "2", .row = R"({"answer": 1})"},
                                               {.text = "2", .row = R"({"answer": 2})"},
                                               {.text = "2", .row = R"({"answer": 1})"}};
  EXPECT_EQ(reward->score(completions), (std::vector<std::optional<double>>{1, 0, 1, 0}));
}

TEST(Lengths, EachSideOfEachLimit) {
  const auto at = [](const std::string& spec, int64_t tokens) {
    return *judged(spec, {.num_tokens = tokens});
  };
  EXPECT_EQ(at("length:10,20", 9), 0);
  EXPECT_EQ(at("length:10,20", 10), 1);
  EXPECT_EQ(at("length:10,20", 20), 1);
  EXPECT_EQ(at("length:10,20", 21), 0);
  EXPECT_EQ(at("length:10,20,4", 7), 0.25);
  EXPECT_EQ(at("length:min=10,max=20,margin=4", 22), 0.5);
  EXPECT_EQ(at("length:10,20,4", 24), 0);
  EXPECT_EQ(at("overlong:100,20", 80), 0);
  EXPECT_EQ(at("overlong:100,20", 90), -0.5);
  EXPECT_EQ(at("overlong:100,20", 100), -1);
  EXPECT_EQ(at("overlong:100,20", 1000), -1);
  EXPECT_EQ(at("overlong:100,0", 100), 0);
  EXPECT_EQ(at("overlong:100,0", 101), -1);
}

TEST(Formats, TagsOnceAndInOrder) {
  const auto is = [](std::string_view text, std::string_view prompt = "") {
    return *judged("format", {.prompt = prompt, .text = text}) == 1;
  };
  EXPECT_TRUE(is("<think>a</think><answer>b</answer>"));
  EXPECT_TRUE(is("\n<think>\na\n</think>\n\n<answer>\nb\n</answer>\n"));
  EXPECT_TRUE(is("a</think><answer>b</answer>", "Think.\n<think>\n"));  // begun by the prompt
  for (const auto* text :
       {"", "a", "<answer>b</answer>", "<think>a</think>", "a<think></think><answer></answer>",
        "<think>a</think><answer>b</answer>c", "<think>a</think>x<answer>b</answer>",
        "<think>a</think><answer>b", "<think>a<answer>b</answer></think>",
        "<think><think>a</think><answer>b</answer>", "<think>a</think></think><answer>b</answer>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a<answer></think><answer>b</answer>"}) {
    EXPECT_FALSE(is(text)) << text;
  }
}

TEST(BoundedRegex, ACatastrophicPatternGivesUp) {
  const std::string as(30'000, 'a');
  for (const auto* pattern :
       {"^(a+)+$", "(a|a)*[bd]", "(a*)*[bd]", "(.*)(.*)(.*)(.*)(.*)[bd]", "(?:a?){50}a{50}[bd]"}) {
    const BoundedRegex regex(pattern);
    EXPECT_EQ(regex.occurs_in(as + "c"), std::nullopt) << pattern;
  }
  // What a simple pattern needs is far from the limit.
  EXPECT_EQ(BoundedRegex("^<think>.*?</think>\\s*\\S").occurs_in("<think>" + as + "</think> b"),
            true);
  EXPECT_EQ(BoundedRegex("b").occurs_in(std::string(10 << 20, 'a')), false);
  EXPECT_EQ(BoundedRegex("[^bd]*[bd]").occurs_in(as), std::nullopt);  // quadratic
}

TEST(BoundedRegex, BytesThatAreNoUtf8) {
  EXPECT_EQ(BoundedRegex("b").occurs_in("a\xff\xfe"
                                        "b"),
            true);
  EXPECT_EQ(BoundedRegex(".").occurs_in("\xff"), false);
  EXPECT_EQ(BoundedRegex("^$").occurs_in(""), true);
  EXPECT_EQ(BoundedRegex("^.$").occurs_in("ä"), true);
}

TEST(Hostile, NoCompletionMakesARewardFail) {
  std::string opened, zeros(100'000, '\0'), bytes;
  for (int i = 0; i < 100'000; ++i) opened += "[";
  for (int i = 0; i < 100'000; ++i) bytes += static_cast<char>(i * 7);
  const std::string row =
      R"({"answer": "5", "nums": [1, 2], "target": 3, "s": {"type": "object"}})";
  for (const auto* spec : {"accuracy", "answer", "boxed", "answer_tag", "format", "think_format",
                           "regex:^(.+)+$", "arithmetic", "json", "json:column=s"}) {
    for (const auto& text : {opened, zeros, bytes, std::string(), "```json\n" + opened + "\n```"}) {
      const auto score = judged(spec, {.text = text, .row = row});
      if (std::string_view(spec).starts_with("regex")) continue;
      EXPECT_EQ(score, 0) << spec;
    }
  }
}

}  // namespace
}  // namespace skein::rewards
