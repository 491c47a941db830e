// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/pair_source.h"

#include <gtest/gtest.h>

#include <numeric>

#include "skein/core/hash.h"
#include "skein/data/loader.h"
#include "skein/data/rows/run_rows.h"
#include "skein/data/rows/test_rows.h"

namespace skein::data {
namespace {

using Ids = std::vector<int64_t>;
constexpr int64_t kNone = tensor::kIgnore;

struct Read {
  Ids tokens, targets;
  bool operator==(const Read&) const = default;
};

Read read(const SampleSource& source, int64_t sample) {
  const auto length = static_cast<size_t>(source.length(sample));
  Read result{.tokens = Ids(length), .targets = Ids(length)};
  source.read(sample, result.tokens, result.targets);
  EXPECT_EQ(std::ssize(result.targets) - std::ranges::count(result.targets, kNone),
            source.num_targets(sample));
  return result;
}

class PairSourceTest : public RowsTest {
 protected:
  PairSource pairs(const std::string& rows, const RowLimits& limits = {}) {
    return {prepare(rows, RowKind::kPairs), limits};
  }
  std::shared_ptr<const FeedbackSource> feedback(const std::string& rows,
                                                 const RowLimits& limits = {}) {
    return std::make_shared<const FeedbackSource>(prepare(rows, RowKind::kFeedback), limits);
  }
};

TEST_F(PairSourceTest, APairIsTwoDocuments) {
  const auto source = pairs(pair_of(2, "A", "BC"));
  ASSERT_EQ(source.count(), 1);
  EXPECT_EQ(source.length(0), 4 + 5);
  EXPECT_EQ(source.documents_per_sample(), 2);
  Ids ends;
  source.append_ends(0, ends);
  EXPECT_EQ(ends, (Ids{4, 9}));
  EXPECT_EQ(read(source, 0).tokens, (Ids{'p', 'p', 'A', 256, 'p', 'p', 'B', 'C', 256}));
  EXPECT_EQ(read(source, 0).targets, (Ids{kNone, 'A', 256, kNone, kNone, 'B', 'C', 256, kNone}));
  const auto counts = source.counts_of(0);
  EXPECT_EQ(counts.targets, 5);
  EXPECT_EQ(counts.samples, 1);
  EXPECT_EQ(counts.chosen_targets, 2);
  EXPECT_EQ(counts.desirable, 0);
  EXPECT_EQ(source.shared_tokens(0), 2);
}

TEST_F(PairSourceTest, ABatchKnowsItsAnswers) {
  const auto source = pairs(pair_of(1, "A", "B") + pair_of(2, "A", "B", ", \"margin\": 0.5") +
                            pair_of(3, "A", "B"));
  const auto answers = source.answers(Ids{2, 1});
  EXPECT_EQ(answers->documents, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(answers->margins, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(answers->samples, (Ids{2, 1}));
  EXPECT_TRUE(answers->desirable.empty());
  EXPECT_FALSE(answers->alone);
  EXPECT_TRUE(source.answers(Ids{0, 2})->margins.empty()) << "none has one";
  ASSERT_NE(source.answers({}), nullptr);
  EXPECT_TRUE(source.answers({})->documents.empty());
}

TEST_F(PairSourceTest, EachAnswerIsCutAndTheOtherGoesWithIt) {
  const std::string eight(8, 'A');
  const auto rows = pair_of(2, eight, "B") + pair_of(8, "A", "B") + pair_of(2, "A", eight + "B") +
                    pair_of(2, "AAAAAAAA", "AAAAAAB");
  const auto source = pairs(rows, {.cutoff_len = 8});
  EXPECT_EQ(source.counts(), (RowCounts{.rows = 4,
                                        .too_long = 4,
                                        .prompt_too_long = 1,
                                        .samples = 2,
                                        .tokens = 11 + 4 + 10 + 10 + 4 + 12 + 11 + 10,
                                        .tokens_lost = 3 + 2 + 2 + 4 + 3 + 2,
                                        .targets = 9 + 2 + 2 + 2 + 2 + 10 + 9 + 8,
                                        .targets_lost = 3 + 2 + 2 + 4 + 3 + 2,
                                        .equal = 1}));
  EXPECT_EQ(source.row_of(1), 2);
  EXPECT_EQ(source.left_out(), (Ids{1, 3}));
  EXPECT_PRED2(contains, source.place_of(1), "train.jsonl:3");
  EXPECT_PRED2(contains, source.first_rows().equal, "train.jsonl:4") << "where they are cut";
  const auto dropping =
      pairs(rows + pair_of(1, "A", "B"), {.cutoff_len = 8, .excess_length = ExcessLength::kDrop});
  EXPECT_EQ(dropping.count(), 1);
  EXPECT_EQ(dropping.counts().too_long, 4);
}

TEST_F(PairSourceTest, EqualAnswersAreDroppedKeptOrRefused) {
  const auto rows = pair_of(2, "A", "B") + pair_of(2, "A", "A");
  const auto open = [&](EqualPairs policy) { return pairs(rows, {.equal_pairs = policy}); };
  EXPECT_EQ(open(EqualPairs::kDrop).count(), 1);
  const auto kept = open(EqualPairs::kKeep);
  EXPECT_EQ(kept.count(), 2);
  EXPECT_EQ(kept.counts().equal, 1);
  EXPECT_PRED2(
      contains, refusal<IoError>([&] { open(EqualPairs::kError); }),
      "train.jsonl:2: the chosen and the rejected answer are equal; give equal_pairs: drop "
      "or keep");
}

TEST_F(PairSourceTest, NothingToTrainOnIsRefused) {
  EXPECT_PRED2(contains, refusal<IoError>([&] { pairs(pair_of(8, "A", "B"), {.cutoff_len = 8}); }),
               "cutoff_len=8 leaves no token of any answer in 1 pair");
  EXPECT_PRED2(contains, refusal<IoError>([&] { pairs(pair_of(2, "A", "A")); }),
               "none of 1 pair can be trained on: 0 without a target");
  EXPECT_PRED2(contains,
               refusal<IoError>([&] { feedback(judged("pppp", "A", true), {.cutoff_len = 4}); }),
               "cutoff_len=4 leaves no token of any answer in 1 row");
}

TEST_F(PairSourceTest, AnswersJudgedAlone) {
  const auto source = feedback(judged("p", "A", true) + judged("qq", "BC", false));
  EXPECT_EQ(source->documents_per_sample(), 1);
  EXPECT_EQ(read(*source, 1).tokens, (Ids{'q', 'q', 'B', 'C', 256}));
  EXPECT_EQ(source->counts_of(0).desirable, 1);
  EXPECT_EQ(source->counts_of(1).desirable, 0);
  EXPECT_EQ(source->counts_of(1).targets, 3);
  const auto answers = source->answers(Ids{1, 0});
  EXPECT_EQ(answers->documents, (Ids{0, 1}));
  EXPECT_EQ(answers->desirable, (std::vector<uint8_t>{0, 1}));
  EXPECT_TRUE(source->answers({})->alone) << "a rank without samples knows it, too";
  EXPECT_EQ(answers->samples, (Ids{1, 0}));
}

TEST_F(PairSourceTest, AMismatchedPromptHasTheAnswerOfTheSampleBefore) {
  // The second is left out: its prompt fills the row.
  const auto source = feedback(judged("p", "A", true) + judged("xxxxxx", "X", true) +
                                   judged("qq", "BC", false) + judged("rrrr", "D", true),
                               {.cutoff_len = 6});
  const auto view = mismatched_of(source);
  ASSERT_EQ(view->count(), 3);
  EXPECT_EQ(read(*view, 0).tokens, (Ids{'p', 'D', 256})) << "of the last";
  EXPECT_EQ(read(*view, 0).targets, (Ids{'D', 256, kNone}));
  EXPECT_EQ(read(*view, 1).tokens, (Ids{'q', 'q', 'A', 256}));
  EXPECT_EQ(read(*view, 2).tokens, (Ids{'r', 'r', 'r', 'r', 'B', 'C'})) << "cut to cutoff_len";
  EXPECT_EQ(read(*view, 2).targets, (Ids{kNone, kNone, kNone, 'B', 'C', kNone}));
  EXPECT_EQ(view->counts_of(2).targets, 2);
  EXPECT_EQ(view->counts_of(1).desirable, 0);
  EXPECT_EQ(view->answers(Ids{1})->samples, (Ids{1}));
  const auto alone = feedback(judged("p", "A", true));
  EXPECT_EQ(read(*mismatched_of(alone), 0), read(*alone, 0));
}

TEST_F(PairSourceTest, SeveralAnswersToOnePromptAreNoOthers) {
  const auto view = mismatched_of(feedback(judged("p", "A", true) + judged("q", "B", true) +
                                           judged("q", "C", false) + judged("q", "D", true)));
  EXPECT_EQ(read(*view, 0).tokens, (Ids{'p', 'D', 256}));
  for (const int64_t sample : {1, 2, 3}) {
    EXPECT_EQ(read(*view, sample).tokens, (Ids{'q', 'A', 256})) << sample;
  }
  const auto around = mismatched_of(
      feedback(judged("p", "A", true) + judged("q", "B", true) + judged("p", "C", false)));
  EXPECT_EQ(read(*around, 0).tokens, (Ids{'p', 'B', 256}))
      << "the last has the prompt of the first";
}

// Pairs of prompts of 3, 1 and 2 tokens: of the second nothing is shared.
TEST_F(PairSourceTest, ARunSharesPrompts) {
  const auto source = pairs(pair_of(3, "A", "BC") + pair_of(1, "A", "B") + pair_of(2, "AA", "AB"));
  const auto run = make_run(source, Ids{0, 1, 2}, 10, true);
  EXPECT_EQ(run.tokens, (Ids{'p', 'p', 'p', 'A', 256, 'p', 'B', 'C', 256, 'p', 'A', 256,
                             'p', 'B', 256, 'p', 'p', 'A', 'A', 256, 'p', 'A', 'B', 256}));
  EXPECT_EQ(run.continues, (std::vector<int32_t>{-1, 0, 0, -1, -1, -1, 5, 5}));
  EXPECT_EQ(run.documents, (Ids{20, 20, 21, 22, 23, 24, 24, 25}));
  EXPECT_EQ(run.answers->documents, (Ids{1, 2, 3, 4, 6, 7}));
  const auto plain = make_run(source, Ids{0, 1, 2}, 10);
  EXPECT_EQ(run.num_targets, plain.num_targets);
  EXPECT_TRUE(plain.continues.empty());
  EXPECT_EQ(plain.documents, (Ids{20, 21, 22, 23, 24, 25}));
  const auto cut = pairs(pair_of(3, "AA", "B"), {.cutoff_len = 4});
  EXPECT_EQ(make_run(cut, Ids{0}, 0, true).tokens, (Ids{'p', 'p', 'p', 'A', 'p', 'B'}));
  const auto none = make_run(source, {}, 0, true);
  EXPECT_EQ(none.tokens, Ids{0});
  EXPECT_TRUE(none.answers->documents.empty());
}

class RunPairsTest : public RowsTest {
 protected:
  RunRowsOptions options(RowKind kind, const std::string& rows) {
    RunRowsOptions options{
        .data = data_, .encoder = byte_encoder(kind), .seed = 7, .vocab_size = 257};
    options.data.train_file = write("train.jsonl", rows).string();
    options.limits.cutoff_len = 12;
    return options;
  }

  static std::string many_pairs(int64_t count) {
    std::string rows;
    for (int64_t i = 0; i < count; ++i) {
      const auto text = [](int64_t length, char letter) {
        return std::string(static_cast<size_t>(length), letter);
      };
      rows += pair_of(1 + i % 5, text(1 + i % 4, 'A'), text(2 + i % 3, 'B'));
    }
    return rows;
  }
};

// Every split of a step trains on the same pairs, whose two answers are next to each other.
TEST_F(RunPairsTest, PairsStayTogetherInEveryBatch) {
  constexpr int64_t kPairs = 23;
  for (const bool packing : {false, true}) {
    auto wanted = options(RowKind::kPairs, many_pairs(kPairs));
    wanted.packing = packing;
    std::vector<int64_t> seen;
    tensor::Counts counts;
    for (int rank = 0; rank < 2; ++rank) {
      const Loader loader(open_rows(wanted),
                          {.data = wanted.data, .model = {}, .per_device_batch = 2, .seed = 7},
                          rank, 2);
      for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
        const auto batches = loader.batches(step);
        if (rank == 0) counts += batches.counts;
        const auto& batch = batches.micro_batches[0];
        ASSERT_NE(batch.answers, nullptr);
        const auto& answers = *batch.answers;
        if (batch.num_targets == 0) {
          EXPECT_TRUE(answers.documents.empty()) << "a rank without a pair";
          continue;
        }
        ASSERT_EQ(answers.documents.size(), batch.document_ends.size());
        ASSERT_EQ(answers.documents.size(), 2 * answers.samples.size());
        EXPECT_TRUE(!packing || batch.length <= 2 * 24) << "two packs of two answers";
        for (size_t i = 0; i < answers.samples.size(); ++i) {
          EXPECT_EQ(batch.documents[2 * i] / 2, answers.samples[i]);
          EXPECT_EQ(batch.documents[2 * i] % 2, 0) << "chosen first";
          EXPECT_EQ(batch.documents[2 * i + 1], batch.documents[2 * i] + 1);
        }
        seen.insert(seen.end(), answers.samples.begin(), answers.samples.end());
      }
    }
    std::ranges::sort(seen);
    ASSERT_EQ(std::ssize(seen), kPairs);
    for (int64_t i = 0; i < kPairs; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
    EXPECT_EQ(counts.samples, kPairs);
    EXPECT_LT(counts.chosen_targets, counts.targets);
  }
}

// What is dealt, and told of it, is the same with prompts shared, but for tokens that nobody
// computes.
TEST_F(RunPairsTest, SharedPromptsChangeNoPlan) {
  auto wanted = options(RowKind::kPairs, many_pairs(9));
  wanted.packing = true;
  const auto loader = [&](bool shares) {
    auto samples = open_rows(wanted);
    samples.share_prompts = shares;
    return Loader(std::move(samples),
                  {.data = wanted.data, .model = {}, .per_device_batch = 2, .seed = 7}, 0, 1);
  };
  const auto plain = loader(false), shared = loader(true);
  ASSERT_EQ(shared.steps_per_epoch(), plain.steps_per_epoch());
  for (int64_t step = 0; step < plain.steps_per_epoch(); ++step) {
    const auto one = plain.batches(step), other = shared.batches(step);
    EXPECT_EQ(other.samples, one.samples);
    EXPECT_EQ(other.lengths, one.lengths);
    EXPECT_EQ(other.counts.targets, one.counts.targets);
    EXPECT_TRUE(one.shared.empty());
    const auto saved = std::accumulate(other.shared.begin(), other.shared.end(), int64_t{0});
    EXPECT_EQ(other.micro_batches[0].length, one.micro_batches[0].length - saved);
    EXPECT_EQ(other.micro_batches[0].num_targets, one.micro_batches[0].num_targets);
  }
}

TEST_F(RunPairsTest, FeedbackComesWithItsMismatchedView) {
  auto wanted = options(RowKind::kFeedback,
                        judged("p", "A", true) + judged("q", "B", false) + judged("r", "C", true));
  wanted.evaluates = true;
  wanted.val_size = 1;
  const auto samples = open_rows(wanted);
  ASSERT_NE(samples.train.mismatched, nullptr);
  ASSERT_TRUE(samples.eval && samples.eval->mismatched);
  EXPECT_EQ(samples.train.mismatched->count(), 3);
  EXPECT_EQ(read(*samples.eval->mismatched, 0).tokens, (Ids{'p', 'C', 256}));
  EXPECT_EQ(open_rows(options(RowKind::kPairs, many_pairs(3))).train.mismatched, nullptr);
}

// Stored with checkpoints, as that of rows.
TEST_F(RunPairsTest, TheDigestIsOfWords) {
  const auto pairs = options(RowKind::kPairs, many_pairs(3));
  EXPECT_EQ(open_rows(pairs).digest,
            digest(fmt::format("pairs, equal ones drop, {} cutoff_len 12 excess truncate alone "
                               "held_out 0 samples 3",
                               open_run_rows(pairs).train.source->prepared().digest)));
  const auto judged_rows = options(RowKind::kFeedback, judged("p", "A", true));
  EXPECT_EQ(
      open_rows(judged_rows).digest,
      digest(fmt::format("feedback {} cutoff_len 12 excess truncate alone held_out 0 samples 1",
                         open_run_rows(judged_rows).train.source->prepared().digest)));
}

}  // namespace
}  // namespace skein::data
