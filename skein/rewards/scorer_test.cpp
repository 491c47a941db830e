// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/scorer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::rewards {
namespace {

using Numbers = std::vector<std::optional<double>>;
const std::optional<double> kNone;

// Of a shell: the next question is taken, `$l`, and `say REST` answers it with these fields.
const std::string kShell =
    "ask() { read -r l && id=${l#*'\"id\":'} && id=${id%%,*}; }; say() { echo "
    "\"{\\\"id\\\":$id,$1}\"; }; ";

// Says that it is ready, and does as `text` says.
std::vector<std::string> script(const std::string& text) {
  return {"sh", "-c", kShell + "echo '{\"protocol\":1}'; " + text};
}

std::vector<std::string> answers(const std::string& fields) {
  return script(fmt::format("while ask; do say '{}'; done", fields));
}

std::vector<Completion> sevens(size_t count) {
  std::vector<Completion> completions(count, {.text = "7", .row = R"({"answer": 7})"});
  for (size_t i = 0; i < count; ++i) {
    completions[i].sample = 10 + i;
    completions[i].generation = static_cast<int64_t>(i);
  }
  return completions;
}

std::string refused(Options options, size_t count = 3) {
  return refusal<UserError>([&] { Scorer(std::move(options)).score(sevens(count)); });
}

TEST(Scorer, WeighsAndKeepsTheParts) {
  Scorer scorer({.functions = {"accuracy", "regex:7", "regex:8", "overlong:1,1"},
                 .weights = {1, 0.5, 0.25, 2}});
  EXPECT_EQ(scorer.names(), (std::vector<std::string>{"accuracy", "regex", "regex_2", "overlong"}));
  const std::vector<Completion> completions = {
      {.text = "7", .row = R"({"answer": 7})", .num_tokens = 1},
      {.text = "8", .row = R"({"answer": 7})"},
      {.text = "7", .row = "{}"}};
  const auto scores = scorer.score(completions);
  EXPECT_EQ(scores.totals, (Numbers{-0.5, 0.25, 0.5}));
  EXPECT_EQ(scores.parts, (std::vector<Numbers>{{1, 0, kNone}, {1, 0, 1}, {0, 1, 0}, {-1, 0, 0}}));
  EXPECT_EQ(scorer.score({}).parts.size(), 4);
}

TEST(Scorer, OptionsThatDoNotFit) {
  EXPECT_NE(refused({}), "");
  EXPECT_EQ(refused({.functions = {"accuracy"}, .weights = {1, 2}}),
            "2 weights of rewards for 1 function: one for each, in their order");
  EXPECT_EQ(refused({.functions = {"accuracy"}, .program = {"x"}, .weights = {1}}),
            "1 weight of rewards for 1 function and the program: one for each, in their order");
  EXPECT_NE(refused({.functions = {"accuracy"}, .weights = {NAN}}), "");
}

TEST(Scorer, WhatNoneScoresIsAnErrorOrLeftOut) {
  std::vector<Completion> completions = {
      {.text = "7", .row = R"({"answer": 7})"},
      {.text = "7", .row = R"({"anser": 7, "q": 1})", .sample = 4}};
  Scorer stops({.functions = {"accuracy", "boxed"}});
  EXPECT_EQ(refusal<UserError>([&] { stops.score(completions); }),
            "no reward (accuracy, boxed) has anything to say about sample 4, generation 0; its row "
            "has the columns anser, q");
  Scorer skips({.functions = {"accuracy"}, .unscored = Unscored::kSkip});
  const auto skipped = skips.score(completions);
  EXPECT_EQ(skipped.totals, (Numbers{1, kNone}));
  EXPECT_EQ(skipped.skipped, (std::vector<bool>{false, true}));
  Scorer beside({.functions = {"accuracy"}, .needs_opinion = false});
  const auto none = beside.score(completions);
  EXPECT_EQ(none.totals, (Numbers{1, kNone}));
  EXPECT_EQ(none.skipped, (std::vector<bool>{false, false}));
}

// An answer that is none, as somebody's 34th line has it.
TEST(Scorer, RowsThatARewardCannotUseAreLeftOutToo) {
  const std::vector<Completion> completions = {
      {.text = "7", .row = R"({"answer": 7})"},
      {.text = "7", .row = R"({"answer": {"value": 7}})", .place = "q.jsonl:34", .sample = 32},
      {.text = "8", .row = R"({"answer": 8})"}};
  Scorer stops({.functions = {"accuracy"}});
  EXPECT_PRED2(contains, refusal<UserError>([&] { stops.score(completions); }),
               "sample 32 (q.jsonl:34), generation 0");
  Scorer skips({.functions = {"accuracy"}, .unscored = Unscored::kSkip});
  const auto scores = skips.score(completions);
  EXPECT_EQ(scores.skipped, (std::vector<bool>{false, true, false}));
  EXPECT_TRUE(scores.totals[0] && !scores.totals[1] && scores.totals[2]);
}

TEST(ScorerProgram, ARewardThatNothingCanBeComparedWithIsNone) {
  EXPECT_PRED2(contains, refused({.program = script("while ask; do say '\"reward\":1e308'; done")}),
               "add up to 1e+308");
}

TEST(ScorerProgram, IsWeighedBesideTheFunctions) {
  Scorer scorer(
      {.functions = {"accuracy"},
       .program = {"sh", "-c",
                   kShell +
                       "echo '{\"protocol\":1,\"names\":[\"a\",\"accuracy\"],\"weights\":[2,3]}';"
                       "while ask; do say '\"rewards\":[1,null]'; done"},
       .weights = {1, 0.5}});
  EXPECT_EQ(scorer.names(), (std::vector<std::string>{"accuracy", "a", "accuracy_2"}));
  EXPECT_EQ(scorer.weights(), (std::vector<double>{1, 1, 1.5}));
  for (int batch = 0; batch < 3; ++batch) {
    const auto scores = scorer.score(sevens(2));
    EXPECT_EQ(scores.totals, (Numbers{2, 2}));
    EXPECT_EQ(scores.parts, (std::vector<Numbers>{{1, 1}, {1, 1}, {kNone, kNone}}));
  }
}

TEST(ScorerProgram, SeesCountsAndColumns) {
  // Answers with the number of the row's column `n`.
  Scorer scorer({.program = script(
                     "while ask; do n=${l#*'\"n\":'}; say \"\\\"reward\\\":${n%%\\}*}\"; done")});
  const std::vector<Completion> completions = {{.row = R"({"n": 3})"}, {.row = R"({"n": 4})"}};
  EXPECT_EQ(scorer.score(completions).totals, (Numbers{3, 4}));
}

TEST(ScorerProgram, RubbishIsOneMessage) {
  const auto message = refused({.program = script("ask; echo hello; ask")}, 1);
  EXPECT_PRED2(contains, message, "reward program 'sh -c ");
  EXPECT_PRED2(contains, message,
               "sample 10, generation 0: it answered 'hello': expected one JSON object");
  EXPECT_PRED2(contains, refused({.program = answers("\"reward\":NaN")}),
               "it answered '{\"id\":0,\"reward\":NaN}': expected JSON, which has no NaN");
  EXPECT_PRED2(contains, refused({.program = answers("\"rewards\":[1,2]")}),
               "expected 1 rewards, one for each name");
  EXPECT_PRED2(contains, refused({.program = {"echo", "hello"}}),
               "it began with 'hello': expected one JSON object");
  EXPECT_PRED2(contains, refused({.program = {"sh", "-c", "echo no numpy >&2; exit 1"}}),
               "it has ended (exit code 1); its last words: no numpy before it was ready");
}

TEST(ScorerProgram, TooManyAnswersAreNone) {
  const auto twice = script("while ask; do say '\"reward\":1'; say '\"reward\":1'; done");
  EXPECT_PRED2(contains, refused({.program = twice}, 3),
               "sample 11, generation 1: it answered '{\"id\":0,\"reward\":1}': expected id 1");
  // One too many at the end may come late, and is then seen by the next call.
  Scorer scorer({.program = twice});
  EXPECT_NE(refusal<UserError>([&] {
              scorer.score(sevens(1));
              scorer.score(sevens(1));
            }),
            "");
  const auto flood = script("ask; say '\"reward\":1'; exec yes");
  EXPECT_PRED2(contains, refused({.program = flood}, 2),
               "sample 11, generation 1: it answered 'y': expected one JSON object");
}

TEST(ScorerProgram, TooFewAnswersAreLate) {
  const Options options{.program = script("ask; say '\"reward\":1'; exec sleep 1000"),
                        .timeout_seconds = 0.3};
  EXPECT_PRED2(contains, refused(options),
               "sample 11, generation 1: it is late; 1 of 3 answers had come (0.3 s are allowed)");
  auto skipping = options;
  skipping.unscored = Unscored::kSkip;
  Scorer skips(skipping);
  EXPECT_EQ(skips.score(sevens(3)).totals, (Numbers{1, kNone, kNone}));
  EXPECT_EQ(skips.score(sevens(3)).totals, (Numbers{1, kNone, kNone}));  // by a new process
}

TEST(ScorerProgram, OneThatNeverBecomesReadyIsLate) {
  EXPECT_PRED2(contains, refused({.program = {"sleep", "1000"}, .start_timeout_seconds = 0.3}),
               "it is late before it was ready (0.3 s are allowed)");
}

class DyingProgram : public TemporaryFolder {
 protected:
  // Ends in the middle of each of its first `times` batches.
  Options dying(int times, int restarts) const {
    return {.program = script(fmt::format(
                "cd {}; echo x >> starts; n=$(wc -l < starts); while ask; do "
                "[ $n -le {} ] && {{ say '\"reward\":0'; echo out of luck >&2; exit 7; }}; "
                "say '\"reward\":1'; done",
                folder_.string(), times)),
            .restarts = restarts};
  }
};

TEST_F(DyingProgram, IsStartedAgainAndAskedForAll) {
  Scorer scorer(dying(2, 2));
  EXPECT_EQ(scorer.score(sevens(3)).totals, (Numbers{1, 1, 1}));
  EXPECT_EQ(read_file(folder_ / "starts"), "x\nx\nx\n");
}

TEST_F(DyingProgram, IsNotStartedForEver) {
  EXPECT_PRED2(contains, refused(dying(9, 2)),
               "sample 11, generation 1: it has ended (exit code 7); its last words: out of luck; "
               "1 of 3 answers had come");
  EXPECT_EQ(read_file(folder_ / "starts"), "x\nx\nx\n");
}

TEST_F(DyingProgram, NotEvenWhereItsCompletionsAreSkipped) {
  auto options = dying(9, 2);
  options.unscored = Unscored::kSkip;
  Scorer scorer(options);
  EXPECT_EQ(scorer.score(sevens(2)).totals, (Numbers{0, kNone}));
  EXPECT_PRED2(contains, refusal<UserError>([&] { scorer.score(sevens(2)); }),
               "it is not started again after 2 restarts");
}

TEST_F(DyingProgram, BetweenTwoBatchesTooAndAsOftenAsItAnswers) {
  Scorer scorer({.program = script("ask; say '\"reward\":1'; exit 0")});
  for (int batch = 0; batch < 8; ++batch) {
    EXPECT_EQ(scorer.score(sevens(1)).totals, Numbers{1});
  }
}

TEST(ScorerProgram, OtherNamesAfterARestartAreRefused) {
  const auto folder = make_temporary_folder("names");
  const auto message = refused(
      {.program = {
           "sh", "-c",
           fmt::format("cd {}; n=a; [ -e x ] && n=b; touch x; echo "
                       "\"{{\\\"protocol\\\":1,\\\"names\\\":[\\\"$n\\\"]}}\"; read l; exit 1",
                       folder.string())}});
  fs::remove_all(folder);
  EXPECT_PRED2(contains, message, "its rewards are b now, and were a");
}

TEST(ScorerProgram, MessagesInsteadOfARewardAreTheNextTurn) {
  Options options{
      .functions = {"accuracy"},
      .program = script("while ask; do case $l in *'\"turn\":0'*) say "
                        "'\"messages\":[{\"role\":\"tool\",\"content\":\"4\"}]';; *) say "
                        "'\"reward\":2';; esac; done"),
      .max_turns = 2};
  Scorer scorer(options);
  auto completions = sevens(2);
  completions[1].turn = 1;
  auto scores = scorer.score(completions);
  EXPECT_EQ(scores.totals, (Numbers{kNone, 3}));
  EXPECT_EQ(scores.parts, (std::vector<Numbers>{{kNone, 1}, {kNone, 2}}));
  ASSERT_EQ(scores.messages[0].size(), 1);
  EXPECT_EQ(scores.messages[0][0].role, "tool");
  EXPECT_EQ(scores.messages[0][0].content, "4");
  EXPECT_TRUE(scores.messages[1].empty());
  options.max_turns = 1;
  EXPECT_PRED2(contains, refused(options), "messages where no further turn is allowed");
}

TEST(ScorerProgram, AStopIsThrownAndTheProgramEnded) {
  int looks = 0;
  Scorer scorer(
      {.program = script("exec sleep 1000"), .stop_requested = [&] { return ++looks > 3; }});
  EXPECT_THROW(scorer.score(sevens(1)), Stopped);
}

}  // namespace
}  // namespace skein::rewards
