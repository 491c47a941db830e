// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/run_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/hash.h"
#include "skein/data/loader.h"
#include "skein/data/rows/test_rows.h"

namespace skein::data {
namespace {

// A document of a batch as it is trained on.
struct Document {
  std::vector<int64_t> tokens, targets;
  int64_t key = 0;
  auto operator<=>(const Document&) const = default;
};

void append_documents(const tensor::HostBatch& batch, std::vector<Document>& documents) {
  ASSERT_EQ(batch.rows, 1);
  ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(batch.length));
  ASSERT_EQ(batch.targets.size(), batch.tokens.size());
  ASSERT_EQ(batch.documents.size(), batch.document_ends.size());
  ASSERT_EQ(batch.document_ends.back(), batch.length) << "no padding";
  if (batch.num_targets == 0) {
    EXPECT_EQ(batch.tokens, std::vector<int64_t>{0});
    EXPECT_EQ(batch.targets, std::vector<int64_t>{tensor::kIgnore});
    return;
  }
  int64_t begin = 0, num_targets = 0;
  for (size_t i = 0; i < batch.documents.size(); ++i) {
    const int64_t end = batch.document_ends[i];
    ASSERT_LT(begin, end);
    Document document{.tokens = {batch.tokens.begin() + begin, batch.tokens.begin() + end},
                      .targets = {batch.targets.begin() + begin, batch.targets.begin() + end},
                      .key = batch.documents[i]};
    EXPECT_EQ(document.targets.back(), tensor::kIgnore) << "documents do not see each other";
    num_targets +=
        std::ssize(document.targets) - std::ranges::count(document.targets, tensor::kIgnore);
    documents.push_back(std::move(document));
    begin = end;
  }
  EXPECT_EQ(num_targets, batch.num_targets);
}

struct Ranks {
  int size;
  int64_t per_device, accumulation;
};

class RunRowsTest : public RowsTest {
 protected:
  static constexpr int64_t kRows = 61;

  RunRowsTest() {
    std::string rows;
    for (int64_t i = 0; i < kRows; ++i) rows += row_of(1 + i % 7, 2 + (i * 5) % 11);
    options_.data = data_;
    options_.data.train_file = write("train.jsonl", rows).string();
    options_.encoder = byte_encoder();
    options_.limits.cutoff_len = 20;
    options_.seed = 7;
    options_.vocab_size = 257;
  }

  std::vector<Loader> loaders(const Ranks& ranks) const {
    std::vector<Loader> all;
    for (int rank = 0; rank < ranks.size; ++rank) {
      LoaderOptions options{.data = options_.data,
                            .model = {},
                            .per_device_batch = ranks.per_device,
                            .accumulation = ranks.accumulation,
                            .eval_batch = options_.evaluates ? 2 : 0,
                            .seed = options_.seed};
      all.emplace_back(open_rows(options_), options, rank, ranks.size);
    }
    return all;
  }

  // What all ranks together train on, in dealing order.
  static std::vector<Document> step_of_all(const std::vector<Loader>& loaders, const Ranks& ranks,
                                           int64_t step) {
    std::vector<StepBatches> parts;
    for (const auto& loader : loaders) parts.push_back(loader.batches(step));
    std::vector<Document> documents;
    int64_t num_targets = 0;
    std::vector<int64_t> lengths;
    for (int64_t micro = 0; micro < ranks.accumulation; ++micro) {
      for (const auto& part : parts) {
        EXPECT_EQ(std::ssize(part.micro_batches), ranks.accumulation);
        append_documents(part.micro_batches[micro], documents);
        num_targets += part.micro_batches[micro].num_targets;
      }
    }
    for (const auto& document : documents) lengths.push_back(std::ssize(document.tokens));
    for (const auto& part : parts) {
      EXPECT_EQ(part.counts.targets, num_targets);
      EXPECT_EQ(part.lengths, lengths);
      EXPECT_EQ(part.samples, parts[0].samples);
    }
    EXPECT_EQ(documents.size(), parts[0].samples.size());
    return documents;
  }

  RunRowsOptions options_;
};

TEST_F(RunRowsTest, EverySplitTrainsOnTheSameDocumentsAndAnEpochOnEachOnce) {
  const Ranks splits[] = {{1, 8, 1}, {1, 2, 4}, {2, 4, 1}, {2, 1, 4}, {4, 2, 1}, {4, 1, 2}};
  for (const auto& [packing, grouped] : {std::pair{false, false}, {false, true}, {true, false}}) {
    options_.packing = packing;
    options_.group_by_length = grouped;
    std::vector<std::vector<Document>> expected;
    for (const auto& ranks : splits) {
      const auto all = loaders(ranks);
      const int64_t steps = all[0].epoch_steps().total(3);
      EXPECT_EQ(steps < 3 * 8, packing) << "packs hold more than one row";
      std::vector<std::vector<Document>> found;
      for (int64_t step = 0; step < steps; ++step) {
        found.push_back(step_of_all(all, ranks, step));
      }
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << ranks.size << " ranks, packing " << packing;
    }
    std::vector<Document> documents;
    for (const auto& step : expected) {
      documents.insert(documents.end(), step.begin(), step.end());
    }
    std::vector<int64_t> keys;
    for (const auto& document : documents) keys.push_back(document.key);
    std::ranges::sort(keys);
    ASSERT_EQ(std::ssize(keys), 3 * kRows);
    for (int64_t i = 0; i < 3 * kRows; ++i) EXPECT_EQ(keys[i], i) << "epoch * rows + row";
  }
}

TEST_F(RunRowsTest, ARankWithoutPacksRunsOneTokenOfWeightZero) {
  const Ranks ranks{8, 16, 1};
  const auto all = loaders(ranks);
  EXPECT_EQ(all[0].steps_per_epoch(), 1);
  EXPECT_EQ(step_of_all(all, ranks, 0).size(), static_cast<size_t>(kRows));
  EXPECT_EQ(all[7].batches(0).micro_batches[0].document_ends, std::vector<int32_t>{1});
}

TEST_F(RunRowsTest, ResumeIsASeekAlsoIntoAnEpochOfAnotherLength) {
  options_.packing = true;
  const Ranks ranks{2, 2, 1};
  const auto undisturbed = loaders(ranks);
  const int64_t steps = undisturbed[0].epoch_steps().total(4);
  std::vector<std::vector<Document>> documents;
  std::vector<int64_t> ends;
  for (int64_t step = 0; step < steps; ++step) {
    documents.push_back(step_of_all(undisturbed, ranks, step));
    ends.push_back(undisturbed[0].batches(step).samples_end);
  }
  for (int64_t step = 1; step < steps; step += 5) {
    const auto resumed = loaders(ranks);
    EXPECT_EQ(resumed[0].step_of(ends[step - 1]), step);
    EXPECT_EQ(step_of_all(resumed, ranks, step), documents[step]);
  }
}

TEST_F(RunRowsTest, HeldOutRowsAreEvaluatedOnceAndNeverTrainedOn) {
  options_.packing = true;
  options_.evaluates = true;
  options_.val_size = 9;
  std::vector<Document> evaluated;
  for (const int size : {1, 2, 3}) {
    const Ranks ranks{size, 2, 1};
    const auto all = loaders(ranks);
    EXPECT_EQ(all[0].num_eval_samples(), 9);
    std::vector<Document> documents;
    for (int64_t k = 0; k < all[0].num_eval_batches(); ++k) {
      for (const auto& loader : all) append_documents(loader.eval_batch(k), documents);
    }
    std::ranges::sort(documents);
    if (evaluated.empty()) evaluated = documents;
    EXPECT_EQ(documents, evaluated);
    for (int64_t step = 0; step < all[0].steps_per_epoch(); ++step) {
      const auto trained = step_of_all(all, ranks, step);
      documents.insert(documents.end(), trained.begin(), trained.end());
    }
    std::ranges::sort(documents, {}, &Document::key);
    ASSERT_EQ(std::ssize(documents), kRows);
    for (int64_t i = 0; i < kRows; ++i) EXPECT_EQ(documents[i].key, i);
  }
}

TEST_F(RunRowsTest, EvaluationRowsOfTheirOwnHoldNothingOut) {
  options_.evaluates = true;
  options_.val_size = 0.5;
  options_.data.eval_file = write("eval.jsonl", row_of(2, 2) + row_of(2, 3)).string();
  const auto all = loaders({1, 2, 1});
  EXPECT_EQ(all[0].num_samples(), kRows);
  EXPECT_EQ(all[0].num_eval_samples(), 2);
  EXPECT_EQ(all[0].eval_counts().targets, 5);
}

// Stored with checkpoints: a later program must still know the data. Words, which no new one moves.
TEST_F(RunRowsTest, TheDigestIsOfWords) {
  const auto rows = open_run_rows(options_).train.source->prepared().digest;
  EXPECT_EQ(open_rows(options_).digest,
            digest(fmt::format("rows {} cutoff_len 20 excess truncate alone held_out 0 samples {}",
                               rows, kRows)));
}

TEST_F(RunRowsTest, TheDigestNamesTheOrder) {
  std::vector<std::string> digests = {open_rows(options_).digest};
  options_.packing = true;
  digests.push_back(open_rows(options_).digest);
  options_.limits.cutoff_len = 19;
  digests.push_back(open_rows(options_).digest);
  options_.val_size = 3;
  digests.push_back(open_rows(options_).digest);
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

TEST_F(RunRowsTest, IdsThatTheModelDoesNotHaveAreRefused) {
  options_.vocab_size = 256;
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_rows(options_); }),
               "a token with id 256, but the model's vocab_size is 256");
}

}  // namespace
}  // namespace skein::data
