// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/label_audit.h"

#include <gtest/gtest.h>

#include "skein/data/rows/inspect_rows.h"
#include "skein/data/rows/pair_source.h"
#include "skein/data/rows/test_rows.h"

namespace skein::data {
namespace {

constexpr uint32_t kEndToken = 256;

class LabelAuditTest : public RowsTest {
 protected:
  SplitRows split(const std::string& rows, const RowLimits& limits = {.cutoff_len = 16}) {
    auto source = std::make_shared<const RowSource>(prepare(rows), limits);
    const SampleSet all(source->count());
    return {.source = std::move(source), .set = all};
  }

  SplitRows split_of(const std::string& rows, RowKind kind) {
    auto source = source_of(prepare(rows, kind), {.cutoff_len = 16});
    const SampleSet all(source->count());
    return {.source = std::move(source), .set = all};
  }

  static std::string repeated(int64_t count, const std::string& row) {
    std::string rows;
    for (int64_t i = 0; i < count; ++i) rows += row;
    return rows;
  }

  static std::string refusal_of(const LabelAudit& audit) {
    return audit.refusal(Split::kTrain).value_or("");
  }
};

TEST_F(LabelAuditTest, CountsWhatIsTrainedOnAndWhatIsLost) {
  const auto rows = row_of(3, 4) + row_of(3, 20) + row_of(20, 5) + row_of(1, 2);
  const auto audit = audit_labels(split(rows), {.ends_of_turn = {kEndToken}, .begin = 'p'}, 2);
  EXPECT_EQ(audit.counts, (RowCounts{.rows = 4,
                                     .too_long = 2,
                                     .prompt_too_long = 1,
                                     .samples = 3,
                                     .tokens = 7 + 23 + 25 + 3,
                                     .tokens_lost = 7 + 9,
                                     .targets = 4 + 20 + 5 + 2,
                                     .targets_lost = 7 + 5}));
  EXPECT_EQ(audit.lengths, (std::vector<LabelAudit::Bin>{{4, 1}, {8, 1}, {16, 0}, {32, 2}}));
  EXPECT_EQ(audit.samples, 3);
  EXPECT_EQ(audit.tokens, 7 + 16 + 3);
  EXPECT_EQ(audit.targets, 4 + 13 + 2);
  EXPECT_EQ(audit.end_trained, 2);
  EXPECT_PRED2(contains, audit.first_without_end, "train.jsonl:2");
  EXPECT_EQ(audit.several_begins, 2) << "'p' stands for BOS";
  EXPECT_PRED2(contains, audit.first_several_begins, "train.jsonl:1");
  const auto text = audit.text(Split::kTrain);
  EXPECT_PRED2(contains, text, "train  3 of 4 rows: 26 tokens, 19 trained on (73.1 %)");
  EXPECT_PRED2(contains, text, "2 rows longer than cutoff_len=16 cut short: 27.6 % of the tokens");
  EXPECT_PRED2(contains, text, "0 rows without a target");
  EXPECT_PRED2(contains, text, "1 rows whose prompt is as long as cutoff_len=16, left out");
  EXPECT_PRED2(contains, text, "the end of a turn is trained on in 2 of 3 rows, first not in");
  EXPECT_PRED2(contains, text, "warning: 2 rows begin more than once (BOS)");
  EXPECT_PRED2(contains, text, "up to        32 tokens           2  █");
}

TEST_F(LabelAuditTest, PairsAreLookedAtPerAnswer) {
  const auto rows = pair_of(2, "AB", "C", ", \"margin\": 2") + pair_of(2, "A", "A") +
                    pair_of(16, "A", "B") + pair_of(2, "ABC", std::string(20, 'B')) +
                    pair_of(1, "", "B", ", \"margin\": -1");
  const auto split = split_of(rows, RowKind::kPairs);
  const auto audit = audit_labels(split, {.ends_of_turn = {kEndToken}, .begin = std::nullopt}, 1);
  EXPECT_EQ(audit.counts.rows, 5);
  EXPECT_EQ(audit.counts.samples, 3);
  EXPECT_EQ(audit.counts.equal, 1);
  EXPECT_EQ(audit.counts.prompt_too_long, 1);
  EXPECT_EQ(audit.counts.without_target, 0);
  EXPECT_EQ(audit.counts.too_long, 2);
  EXPECT_EQ(audit.answers, 6);
  EXPECT_EQ(audit.end_trained, 5);
  EXPECT_EQ(audit.chosen_targets, 3 + 4 + 1);
  EXPECT_EQ(audit.targets, 3 + 2 + 4 + 14 + 1 + 2);
  const auto text = audit.text(Split::kTrain);
  EXPECT_PRED2(contains, text, "train  3 of 5 pairs: ");
  EXPECT_PRED2(contains, text,
               "of each pair, 2.7 tokens of the chosen answer and 6.0 of the rejected one");
  EXPECT_PRED2(contains, text, "margins from -1 to 2 in 2 of 3 pairs");
  EXPECT_PRED2(contains, text, "1 pairs have two equal answers (first ");
  EXPECT_PRED2(contains, text, "train.jsonl:2): left out; equal_pairs=keep trains on them");
  EXPECT_PRED2(contains, text, "1 pairs whose prompt is as long as cutoff_len=16, left out");
  EXPECT_PRED2(contains, text, "the end of a turn is trained on in 5 of 6 answers, first not in");
  EXPECT_PRED2(
      contains, refusal_of(audit),
      "1 of 5 pairs of the train data (20.0 %) have a prompt as long as cutoff_len=16, the "
      "first ");
  EXPECT_PRED2(contains, refusal_of(audit),
               "train.jsonl:3: no token of an answer is left; give a larger cutoff_len, or "
               "excess_length_strategy=drop, which");
  EXPECT_FALSE(contains(refusal_of(audit), "train_on_prompt"));
}

TEST_F(LabelAuditTest, SharesOfGoodAnswersAreTold) {
  const auto text_of = [&](int64_t good, int64_t bad) {
    const auto rows =
        repeated(good, judged("p", "A", true)) + repeated(bad, judged("p", "B", false));
    return audit_labels(split_of(rows, RowKind::kFeedback), {}, 1).text(Split::kTrain);
  };
  EXPECT_PRED2(contains, text_of(1, 1), "1 of 2 answers are desirable (50.0 %)\n");
  EXPECT_PRED2(contains, text_of(30, 10),
               "30 of 40 answers are desirable (75.0 %); kto_rejected_weight=2.25 to 3.00 would");
  EXPECT_PRED2(contains, text_of(1, 2), "kto_chosen_weight=2.00 to 2.67 would balance them");
  EXPECT_PRED2(contains, text_of(2, 0), "warning: answers of both kinds are needed");
}

TEST_F(LabelAuditTest, TheBalanceIsThatOfTheWeightsAsGiven) {
  const auto text_of = [&](int64_t good, int64_t bad, double chosen, double rejected) {
    const auto rows =
        repeated(good, judged("p", "A", true)) + repeated(bad, judged("p", "B", false));
    return audit_labels(
               split_of(rows, RowKind::kFeedback),
               {.begin = std::nullopt, .chosen_weight = chosen, .rejected_weight = rejected}, 1)
        .text(Split::kTrain);
  };
  const auto is_silent = [](const std::string& text) {
    return text.find("would balance") == std::string::npos;
  };
  EXPECT_PRED2(contains, text_of(16, 11, 1, 1), "kto_rejected_weight=1.09 to 1.45 would balance");
  EXPECT_PRED1(is_silent, text_of(16, 11, 1, 1.2));
  EXPECT_PRED1(is_silent, text_of(16, 11, 1, 1.09)) << "as it was advised";
  EXPECT_PRED1(is_silent, text_of(16, 11, 1, 1.45));
  EXPECT_PRED1(is_silent, text_of(1, 3, 3, 1));
  EXPECT_PRED2(contains, text_of(1, 1, 3, 1), "kto_chosen_weight=1.00 to 1.33 would balance them");
  EXPECT_PRED2(contains, text_of(1, 1, 1, 2), "kto_rejected_weight=0.75 to 1.00 would balance");
  EXPECT_PRED2(contains, text_of(3, 1, 2, 2), "kto_rejected_weight=4.50 to 6.00 would balance");
  EXPECT_PRED2(contains, text_of(1, 1, 0, 1), "warning: desirable answers have weight 0");
}

TEST_F(LabelAuditTest, BothAnswersAreShown) {
  RunRowsOptions options{
      .data = data_, .encoder = byte_encoder(RowKind::kPairs), .vocab_size = 257};
  const auto decode = [](std::span<const uint32_t> ids) {
    std::string text;
    for (const uint32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : "</s>";
    return text;
  };
  options.data.train_file =
      write("train.jsonl", pair_of(2, "A", "BC", ", \"margin\": 1.5")).string();
  EXPECT_PRED2(contains, inspect_rows(options, {}, decode),
               "train.jsonl:1: margin 1.5\nsample 0: 9 tokens, 5 trained on\n"
               "chosen\n  ⟦pp⟧A</s>\nrejected\n  ⟦pp⟧BC</s>\n");
  options.packing = true;
  options.limits.cutoff_len = 8;
  EXPECT_PRED2(contains, describe_rows(open_run_rows(options), options, {}).text,
               "1 packs of 16 tokens");
  options.packing = false;
  options.encoder = byte_encoder(RowKind::kFeedback);
  options.data.train_file = write("train.jsonl", judged("p", "A", false)).string();
  EXPECT_PRED2(contains, inspect_rows(options, {}, decode),
               "train.jsonl:1: undesirable\nsample 0: 3 tokens, 2 trained on\n  ⟦p⟧A</s>\n");
}

TEST_F(LabelAuditTest, WarnsOfTurnsThatRenderToNothing) {
  const auto turn = [](const char* answer) {
    return fmt::format(
        R"({{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "{}"}})", answer);
  };
  const auto row = [&](const char* first, const char* second) {
    return fmt::format("{{\"messages\": [{}, {}]}}\n", turn(first), turn(second));
  };
  const auto rows = split(row("a", "b") + row("", "b") + row("", ""), {.cutoff_len = 64});
  const AuditOptions tokens{.ends_of_turn = {kEndToken}, .begin = std::nullopt};
  const auto audit = audit_labels(rows, tokens, 1);
  EXPECT_EQ(audit.empty_turns, 3);
  EXPECT_PRED2(contains, audit.first_empty_turn, "train.jsonl:2");
  EXPECT_PRED2(contains, audit.text(Split::kTrain),
               "warning: 3 assistant turns render to nothing: they are empty, or the template");
  EXPECT_EQ(refusal_of(audit), "") << "some answers are no answer";
  const auto full = audit_labels(split(row("a", "b"), {.cutoff_len = 64}), tokens, 1);
  EXPECT_EQ(full.text(Split::kTrain).find("render to nothing"), std::string::npos);
}

TEST_F(LabelAuditTest, StopsAboveFivePercentWithoutTarget) {
  const auto good = row_of(1, 2), bad = row_of(20, 2);
  const AuditOptions tokens{.ends_of_turn = {kEndToken}, .begin = std::nullopt};
  EXPECT_EQ(refusal_of(audit_labels(split(repeated(19, good) + bad), tokens, 1)), "");
  EXPECT_PRED2(
      contains, refusal_of(audit_labels(split(repeated(18, good) + bad), tokens, 1)),
      "1 of 19 rows of the train data (5.3 %) have a prompt as long as cutoff_len=16, the");
}

TEST_F(LabelAuditTest, RowsThatNeverHadATargetAreToldFromThoseThatLostIt) {
  const AuditOptions tokens{.ends_of_turn = {kEndToken}, .begin = std::nullopt};
  const std::string empty = "{\"text\": \"\"}\n";
  const auto why =
      refusal_of(audit_labels(split(repeated(4, row_of(1, 2)) + row_of(20, 2) + empty), tokens, 1));
  EXPECT_PRED2(contains, why, "1 of 6 rows of the train data (16.7 %) have a prompt as long as");
  EXPECT_PRED2(contains, why, "train.jsonl:5: no token");
  EXPECT_PRED2(contains, why,
               "; 1 of 6 rows of the train data (16.7 %) have no target, the first ");
  EXPECT_PRED2(contains, why, "train.jsonl:6: nothing in them is trained on; another template or ");
  const auto dropping = split(repeated(4, row_of(1, 2)) + row_of(20, 2),
                              {.cutoff_len = 16, .excess_length = ExcessLength::kDrop});
  EXPECT_EQ(refusal_of(audit_labels(dropping, tokens, 1)), "") << "as the refusal says";
}

TEST_F(LabelAuditTest, ScoresMayStandAnywhereButWhereAllAnswersAreCut) {
  const AuditOptions writes{.ends_of_turn = {kEndToken}, .begin = std::nullopt};
  auto scores = writes;
  scores.scores = true;
  const std::string long_answer(30, 'A');
  const auto cut = pair_of(3, long_answer, "B" + long_answer);
  const auto all = split_of(repeated(3, cut), RowKind::kPairs);
  EXPECT_PRED2(contains, refusal_of(audit_labels(all, writes, 1)), "the model would never stop");
  EXPECT_PRED2(contains, refusal_of(audit_labels(all, scores, 1)),
               "cutoff_len=16 cuts every answer of the train data: scores would stand where");
  const auto half = split_of(cut + pair_of(3, "A", long_answer), RowKind::kPairs);
  EXPECT_EQ(refusal_of(audit_labels(half, scores, 1)), "");
  scores.ends_of_turn = {999};
  const auto whole = split_of(pair_of(3, "A", "B"), RowKind::kPairs);
  EXPECT_EQ(refusal_of(audit_labels(whole, scores, 1)), "") << "the last token is what counts";
  scores.missing = "give new_special_tokens";
  EXPECT_PRED2(contains, refusal_of(audit_labels(whole, scores, 1)),
               "never see one; give new_special_tokens");
}

TEST_F(LabelAuditTest, PlainTextIsToldWhereThereIsATemplate) {
  const std::string talk =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
      "\n";
  const AuditOptions with{.begin = std::nullopt, .has_template = true};
  const auto rows =
      split(talk + row_of(2, 2) + "{\"text\": \"AB\"}\n" + row_of(3, 2), {.cutoff_len = 64});
  const auto audit = audit_labels(rows, with, 1);
  EXPECT_EQ(audit.plain, 2) << "a document is none";
  EXPECT_PRED2(contains, audit.text(Split::kTrain),
               "2 rows are plain text: no template is put around them; give messages (first ");
  EXPECT_PRED2(contains, audit.first_plain, "train.jsonl:2");
  EXPECT_FALSE(contains(audit_labels(rows, {}, 1).text(Split::kTrain), "plain text"));
  EXPECT_FALSE(contains(audit_labels(split(talk, {.cutoff_len = 64}), with, 1).text(Split::kTrain),
                        "plain text"));
  EXPECT_PRED2(
      contains,
      audit_labels(split_of(pair_of(2, "A", "B"), RowKind::kPairs), with, 1).text(Split::kTrain),
      "1 pairs are plain text");
  EXPECT_PRED2(contains,
               audit_labels(split_of("{\"prompt\": \"A\"}\n", RowKind::kPrompts), with, 1)
                   .text(Split::kTrain),
               "1 prompts are plain text");
}

TEST_F(LabelAuditTest, StopsWhereTheEndOfATurnIsNeverTrainedOn) {
  const AuditOptions tokens{.ends_of_turn = {kEndToken, 999}, .begin = std::nullopt};
  const auto cut = split(repeated(3, row_of(3, 30)));
  EXPECT_PRED2(contains, refusal_of(audit_labels(cut, tokens, 1)),
               "in no row of the train data is the end of a turn trained on");
  EXPECT_EQ(refusal_of(audit_labels(cut, {}, 1)), "") << "nothing ends a turn";
  EXPECT_EQ(refusal_of(audit_labels(split(repeated(3, row_of(3, 30)) + row_of(1, 2)), tokens, 1)),
            "");
}

TEST_F(LabelAuditTest, IsTheSameForAnyNumberOfThreads) {
  std::string rows;
  for (int64_t i = 0; i < 10'000; ++i) rows += row_of(1 + i % 19, 2 + i % 5);
  const auto all = split(rows);
  const AuditOptions tokens{.ends_of_turn = {kEndToken}, .begin = 'p'};
  const auto expected = audit_labels(all, tokens, 1);
  for (const int threads : {2, 5}) EXPECT_EQ(audit_labels(all, tokens, threads), expected);
}

TEST_F(LabelAuditTest, BothSplitsAreLookedAt) {
  RunRowsOptions options{.data = data_, .encoder = byte_encoder(), .vocab_size = 257};
  options.data.train_file = write("train.jsonl", repeated(20, row_of(1, 2))).string();
  options.data.eval_file = write("eval.jsonl", repeated(3, row_of(3, 30))).string();
  options.limits.cutoff_len = 16;
  const AuditOptions tokens{.ends_of_turn = {kEndToken}, .begin = std::nullopt};
  const auto rows = open_run_rows(options);
  EXPECT_NO_THROW(require_labels(rows, tokens, 1)) << "what is measured does not train";
  const auto [text, why] = describe_rows(rows, options, tokens);
  EXPECT_PRED2(contains, text, "train  20 of 20 rows");
  EXPECT_PRED2(contains, text, "eval   3 of 3 rows");
  EXPECT_PRED2(contains, text, "warning: no turn of these rows is measured to its end");
  EXPECT_EQ(why.value_or(""), "");
  EXPECT_FALSE(contains(text, "packs of"));
}

TEST_F(LabelAuditTest, PacksAreDescribed) {
  RunRowsOptions options{
      .data = data_, .encoder = byte_encoder(), .packing = true, .vocab_size = 257};
  options.data.train_file = write("train.jsonl", repeated(21, row_of(1, 2))).string();
  options.limits.cutoff_len = 16;
  const auto described = describe_rows(open_run_rows(options), options, {});
  EXPECT_PRED2(contains, described.text, "5 packs of 16 tokens, 78.75 % full");
}

// Of 8 short and 8 long rows of one file.
TEST_F(LabelAuditTest, EachSplitHasLengthsOfItsOwn) {
  RunRowsOptions options{.data = data_, .encoder = byte_encoder(), .vocab_size = 257};
  options.data.train_file =
      write("train.jsonl", repeated(8, row_of(1, 2)) + repeated(8, row_of(20, 9)) + row_of(60, 9))
          .string();
  options.limits = {.cutoff_len = 32, .excess_length = ExcessLength::kDrop};
  options.val_size = 6;
  const auto rows = open_run_rows(options);
  const auto total = [](const LabelAudit& audit) {
    int64_t count = 0;
    for (const auto& bin : audit.lengths) count += bin.rows;
    return count;
  };
  const auto train = audit_labels(rows.train, {}, 1), eval = audit_labels(*rows.eval, {}, 1);
  EXPECT_EQ(total(train), 11) << "ten, and the one that is left out";
  EXPECT_EQ(train.lengths.back(), (LabelAudit::Bin{.longest = 128, .rows = 1}));
  EXPECT_EQ(total(eval), 6);
  EXPECT_EQ(eval.lengths.back().longest, 32);
  const auto text = eval.text(Split::kEval);
  EXPECT_PRED2(contains, text, "eval   6 of 17 rows");
  EXPECT_FALSE(contains(text, "left out")) << "told with the training rows";
  EXPECT_PRED2(contains, train.text(Split::kTrain), "1 rows longer than cutoff_len=32 left out");
}

TEST_F(LabelAuditTest, RowsAreShownWithWhatIsTrainedOn) {
  RunRowsOptions options{.data = data_, .encoder = byte_encoder(), .vocab_size = 257};
  options.data.train_file =
      write("train.jsonl", "{\"prompt\": \"A\\u001b\", \"completion\": \"B\"}\n").string();
  const auto decode = [](std::span<const uint32_t> ids) {
    std::string text;
    for (const uint32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : "</s>";
    return text;
  };
  for (const bool packing : {false, true}) {
    options.packing = packing;
    const auto text = inspect_rows(options, {}, decode);
    EXPECT_PRED2(contains, text, "train.jsonl:1\nsample 0: 4 tokens, 2 trained on\n");
    EXPECT_PRED2(contains, text, "⟦A\\x1B⟧B</s>") << "what a terminal would obey is escaped";
    EXPECT_PRED2(contains, inspect_rows(options, {.marks = Marks::kColour}, decode),
                 "A\\x1B\x1b[32mB</s>\x1b[0m");
  }
  EXPECT_THROW(inspect_rows(options, {.split = Split::kEval}, decode), UserError);
}

}  // namespace
}  // namespace skein::data
