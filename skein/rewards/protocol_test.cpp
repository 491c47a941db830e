// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/protocol.h"

#include <gtest/gtest.h>

#include "skein/core/json.h"
#include "skein/core/testing.h"

namespace skein::rewards {
namespace {

std::string bad_ready(std::string_view line) {
  return refusal<BadLine>([&] { read_ready(line); });
}

// Most of what follows is about other fields.
std::string with_id(std::string_view line) {
  const bool needs_one = line.starts_with("{\"");
  return needs_one ? "{\"id\":0," + std::string(line.substr(1)) : std::string(line);
}

std::string bad_answer(std::string_view line, Expected expected = {}) {
  return refusal<BadLine>([&] { read_answer(with_id(line), expected); });
}

TEST(Ready, NamesAndWeights) {
  EXPECT_EQ(read_ready(R"({"protocol": 1})").names, std::vector<std::string>{"program"});
  const auto ready =
      read_ready(R"({"protocol": 1, "names": ["a", "b.c-d_1"], "weights": [1, 0.5]})");
  EXPECT_EQ(ready.names, (std::vector<std::string>{"a", "b.c-d_1"}));
  EXPECT_EQ(ready.weights, (std::vector<double>{1, 0.5}));
}

TEST(Ready, WhatIsRefused) {
  for (const auto* line :
       {"", "ready", "[]", "{}", R"({"protocol": 2})", R"({"protocol": "1"})",
        R"({"protocol": 1, "names": []})", R"({"protocol": 1, "names": "a"})",
        R"({"protocol": 1, "names": [1]})", R"({"protocol": 1, "names": ["a/b"]})",
        R"({"protocol": 1, "names": [""]})", R"({"protocol": 1, "weights": [1, 2]})",
        R"({"protocol": 1, "weights": [null]})", R"({"protocol": 1, "weights": 1})"}) {
    EXPECT_NE(bad_ready(line), "") << line;
  }
  EXPECT_EQ(bad_ready(R"({"protocol": 1, "name": ["a"]})"),
            "unknown key 'name'; did you mean 'names'?");
  EXPECT_EQ(bad_ready("Loading model..."), "expected one JSON object (invalid JSON)");
}

TEST(Request, AllOfACompletionOnOneLine) {
  const Completion completion{.prompt = "a\nb",
                              .text = "half \xe2\x82",
                              .num_tokens = 7,
                              .finished = false,
                              .sample = UINT64_MAX,
                              .generation = 3,
                              .turn = 1};
  const auto row = parse_json(R"({"id": 18446744073709551615, "x": [1, {"y": null}]})");
  const auto line =
      request_line(completion, row, {.id = 42, .batch = 5, .index = 2, .count = 8}, 4);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto read = parse_json(std::string_view(line).substr(0, line.size() - 1));
  EXPECT_EQ(
      read,
      parse_json(R"({"id": 42, "batch": 5, "index": 2, "count": 8, "sample": 18446744073709551615,
    "generation": 3, "turn": 1, "max_turns": 4, "prompt": "a\nb", "completion": "half )"
                 "\xef\xbf\xbd"
                 R"(", "num_tokens": 7, "finished": false,
    "row": {"id": 18446744073709551615, "x": [1, {"y": null}]}})"));
}

TEST(Answers, ARewardOrSeveralOrMessages) {
  using Rewards = std::vector<std::optional<double>>;
  EXPECT_EQ(read_answer(R"({"id": 0, "reward": 0.5})", {}).rewards, Rewards{0.5});
  EXPECT_EQ(read_answer(R"({"id": 3, "reward": null})", {.id = 3}).rewards, Rewards{std::nullopt});
  EXPECT_EQ(read_answer(R"({"id": 0, "rewards": [1, null]})", {.num_rewards = 2}).rewards,
            (Rewards{1.0, std::nullopt}));
  const auto answer = read_answer(R"({"id": 0, "messages": [{"role": "tool", "content": "4"}]})",
                                  {.num_rewards = 2, .may_go_on = true});
  EXPECT_TRUE(answer.rewards.empty());
  ASSERT_EQ(answer.messages.size(), 1);
  EXPECT_EQ(answer.messages[0].role + answer.messages[0].content, "tool4");
}

TEST(Answers, WhatIsRefused) {
  for (const auto* line : {"",
                           "0.5",
                           "nonsense",
                           "{",
                           "{}",
                           "[0.5]",
                           R"({"reward": "1"})",
                           R"({"reward": true})",
                           R"({"reward": [1]})",
                           R"({"reward": 1e999})",
                           R"({"rewards": 1})",
                           R"({"rewards": []})",
                           R"({"rewards": [1, 2]})",
                           R"({"reward": 1, "rewards": [1]})",
                           R"({"index": 1, "reward": 1})",
                           R"({"reward": 1, "id": 0})",
                           R"({"reward": 1} {"reward": 1})",
                           R"({"reward": 1, "reward": 2})",
                           R"({"messages": []})",
                           R"({"error": 1})"}) {
    EXPECT_NE(bad_answer(line), "") << line;
  }
  EXPECT_EQ(bad_answer(R"({"reward": NaN})"), "expected JSON, which has no NaN and no Infinity");
  EXPECT_EQ(bad_answer(R"({"reward": -Infinity})"), bad_answer(R"({"reward": NaN})"));
  EXPECT_EQ(bad_answer(R"({"rewrad": 1})"),
            "unknown key 'rewrad'; did you mean 'reward' or 'rewards'?");
  EXPECT_EQ(bad_answer(R"({"error": "f raised\nValueError"})"),
            "it has failed: f raised\\nValueError");
  const auto misplaced =
      refusal<MisplacedLine>([] { read_answer(R"({"id": 4, "reward": 1})", {.id = 3}); });
  EXPECT_PRED2(contains, misplaced, "expected id 3");
  EXPECT_NE(refusal<MisplacedLine>([] { read_answer(R"({"id": "0", "reward": 1})", {}); }), "");
  EXPECT_EQ(refusal<BadLine>([] { read_answer(R"({"reward": 1})", {}); }),
            "expected the 'id' of the question in it");
}

TEST(Answers, MessagesOnlyWhereTheConversationMayGoOn) {
  const std::string line = R"({"messages": [{"role": "tool", "content": "4"}]})";
  EXPECT_PRED2(contains, bad_answer(line), "max_turns");
  for (const auto* messages :
       {"1", "[]", "[1]", R"([{"role": "tool"}])", R"([{"role": "", "content": "a"}])",
        R"([{"role": "tool", "content": 1}])", R"([{"role": "tool", "content": "a", "x": 1}])"}) {
    EXPECT_NE(bad_answer("{\"messages\": " + std::string(messages) + "}", {.may_go_on = true}), "")
        << messages;
  }
}

}  // namespace
}  // namespace skein::rewards
