// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

struct Deal {
  int size;
  int64_t per_device, accumulation;
};

class LoaderTest : public TemporaryFolder {
 protected:
  LoaderTest() {
    options_.data.train_file = (folder_ / "train.bin").string();
    options_.data.data_cache_dir = (folder_ / "cache").string();
    options_.data.block_size = 4;
    options_.seed = 7;
    options_.vocab_size = 1000;
    write_tokens(4 * 30 + 3);  // 31 samples, the last with 2 targets
  }

  // Token i has id i + 1, so that padding (0) cannot be taken for data.
  void write_tokens(int64_t count) const {
    std::string bytes;
    for (int64_t i = 1; i <= count; ++i) {
      bytes += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
    }
    write_file_atomically(options_.data.train_file, bytes);
  }

  Loader loader(const Deal& deal, int rank) const {
    auto options = options_;
    options.per_device_batch = deal.per_device;
    options.accumulation = deal.accumulation;
    return Loader(options, rank, deal.size);
  }

  std::vector<Loader> ranks(const Deal& deal) const {
    std::vector<Loader> loaders;
    for (int rank = 0; rank < deal.size; ++rank) loaders.push_back(loader(deal, rank));
    return loaders;
  }

  LoaderOptions options_;
};

// A row as the order of its tokens and targets, without padding.
struct Row {
  std::vector<int64_t> tokens, targets;
  int64_t document = 0;
  bool operator==(const Row&) const = default;
};

void append_rows(const tensor::HostBatch& batch, std::vector<Row>& rows) {
  ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(batch.rows * batch.length));
  ASSERT_EQ(batch.targets.size(), batch.tokens.size());
  ASSERT_EQ(batch.documents.size(), static_cast<size_t>(batch.rows));
  if (batch.num_targets == 0) {
    EXPECT_EQ(batch.tokens, std::vector<int64_t>{0});
    EXPECT_EQ(batch.targets, std::vector<int64_t>{tensor::kIgnore});
    return;
  }
  int64_t num_targets = 0;
  for (int64_t b = 0; b < batch.rows; ++b) {
    Row row{.document = batch.documents[b]};
    for (int64_t t = 0; t < batch.length; ++t) {
      const auto at = b * batch.length + t;
      if (batch.tokens[at] == 0) {
        EXPECT_EQ(batch.targets[at], tensor::kIgnore);
      } else {
        row.tokens.push_back(batch.tokens[at]);
        row.targets.push_back(batch.targets[at]);
      }
    }
    num_targets += std::ssize(row.targets) - std::ranges::count(row.targets, tensor::kIgnore);
    rows.push_back(row);
  }
  EXPECT_EQ(num_targets, batch.num_targets);
}

// What all ranks together train on in a step, in dealing order.
struct GlobalStep {
  std::vector<Row> rows;
  std::vector<int64_t> samples, lengths;
  int64_t num_targets = 0, samples_end = 0;
  double epoch = 0;
  bool operator==(const GlobalStep&) const = default;
};

GlobalStep global_step(const std::vector<Loader>& ranks, const Deal& deal, int64_t step) {
  std::vector<StepBatches> parts;
  for (const auto& loader : ranks) parts.push_back(loader.batches(step));
  GlobalStep whole{.samples = parts[0].samples,
                   .lengths = parts[0].lengths,
                   .num_targets = parts[0].counts.targets,
                   .samples_end = parts[0].samples_end,
                   .epoch = parts[0].epoch};
  int64_t num_targets = 0;
  for (int64_t micro = 0; micro < deal.accumulation; ++micro) {
    for (const auto& part : parts) {
      EXPECT_EQ(part.micro_batches.size(), static_cast<size_t>(deal.accumulation));
      EXPECT_EQ(part.samples, whole.samples);
      EXPECT_EQ(part.counts.targets, whole.num_targets);
      append_rows(part.micro_batches[micro], whole.rows);
      num_targets += part.micro_batches[micro].num_targets;
    }
  }
  EXPECT_EQ(num_targets, whole.num_targets);
  std::vector<int64_t> lengths;
  for (const auto& row : whole.rows) lengths.push_back(std::ssize(row.tokens));
  EXPECT_EQ(lengths, whole.lengths);
  return whole;
}

TEST_F(LoaderTest, EverySplitOfAGlobalBatchTrainsOnTheSameRows) {
  const Deal deals[] = {{1, 12, 1}, {1, 3, 4}, {1, 1, 12}, {2, 6, 1}, {2, 2, 3},
                        {3, 4, 1},  {3, 2, 2}, {4, 3, 1},  {4, 1, 3}};
  std::vector<GlobalStep> expected;
  for (const auto& deal : deals) {
    const auto loaders = ranks(deal);
    ASSERT_EQ(loaders[0].steps_per_epoch(), 3);
    std::vector<GlobalStep> steps;
    for (int64_t step = 0; step < 6; ++step) steps.push_back(global_step(loaders, deal, step));
    if (expected.empty()) expected = steps;
    EXPECT_EQ(steps, expected) << deal.size << " x " << deal.per_device << " x "
                               << deal.accumulation;
  }
  EXPECT_EQ(expected[2].samples.size(), 31u - 24);
  EXPECT_EQ(expected[3].samples_end, 31 + 12);
}

TEST_F(LoaderTest, RowsAreTheBlocksAndTargetsTheNextTokens) {
  const Deal deal{2, 3, 2};
  const auto loaders = ranks(deal);
  for (int64_t step = 0; step < 6; ++step) {
    const auto whole = global_step(loaders, deal, step);
    ASSERT_EQ(whole.rows.size(), whole.samples.size());
    for (size_t j = 0; j < whole.rows.size(); ++j) {
      const int64_t sample = whole.samples[j], first = 4 * sample + 1;
      Row row{.tokens = {first, first + 1, first + 2},
              .targets = {first + 1, first + 2},
              .document = sample + (step < 3 ? 0 : 31)};
      if (sample != 30) {
        row.tokens.push_back(first + 3);
        row.targets.push_back(first + 3);
      }
      row.targets.push_back(tensor::kIgnore);
      EXPECT_EQ(whole.rows[j], row) << "sample " << sample;
    }
  }
}

TEST_F(LoaderTest, EverySampleOncePerEpochForEverySize) {
  for (int size = 1; size <= 4; ++size) {
    for (const int64_t per_device : {1, 2, 5}) {
      for (const int64_t accumulation : {1, 3}) {
        const Deal deal{size, per_device, accumulation};
        const auto loaders = ranks(deal);
        std::vector<int64_t> documents;
        for (int64_t step = 0; step < 2 * loaders[0].steps_per_epoch(); ++step) {
          for (const auto& row : global_step(loaders, deal, step).rows) {
            documents.push_back(row.document);
          }
        }
        std::sort(documents.begin(), documents.end());
        ASSERT_EQ(documents.size(), 62u);
        for (int64_t i = 0; i < 62; ++i) ASSERT_EQ(documents[i], i);
      }
    }
  }
}

TEST_F(LoaderTest, DropLastDropsTheSameSamplesForEverySize) {
  options_.data.dataloader_drop_last = true;
  const Deal one{1, 12, 1}, four{4, 1, 3};
  const auto alone = ranks(one), together = ranks(four);
  ASSERT_EQ(alone[0].steps_per_epoch(), 2);
  for (int64_t step = 0; step < 4; ++step) {
    const auto whole = global_step(together, four, step);
    EXPECT_EQ(whole.samples.size(), 12u);
    EXPECT_EQ(whole, global_step(alone, one, step));
  }
}

TEST_F(LoaderTest, ResumeIsASeek) {
  const Deal deal{1, 2, 2};
  const auto undisturbed = ranks(deal);
  std::vector<GlobalStep> steps;
  for (int64_t step = 0; step < 20; ++step) steps.push_back(global_step(undisturbed, deal, step));
  const auto resumed = ranks(deal);
  for (const int64_t step : {19, 7, 8}) {
    EXPECT_EQ(global_step(resumed, deal, step), steps[step]);
  }
}

TEST_F(LoaderTest, ReadingAheadChangesNothing) {
  const Deal deal{2, 2, 2};
  const auto ahead = ranks(deal);
  options_.data.dataloader_num_workers = 0;
  const auto plain = ranks(deal);
  for (const int64_t step : {0, 1, 2, 3, 9, 10, 4}) {
    EXPECT_EQ(global_step(ahead, deal, step), global_step(plain, deal, step));
  }
}

TEST_F(LoaderTest, EvaluationSeesEveryHeldOutSampleOnceAndTrainingNone) {
  options_.data.validation_split_percentage = 20;  // 6 of 31
  options_.eval_batch = 2;
  for (int size = 1; size <= 4; ++size) {
    const Deal deal{size, 2, 1};
    const auto loaders = ranks(deal);
    EXPECT_EQ(loaders[0].num_samples(), 25);
    EXPECT_EQ(loaders[0].num_eval_samples(), 6);
    std::vector<int64_t> samples;
    for (const auto& row : global_step(loaders, deal, 0).rows) samples.push_back(row.document);
    for (int64_t step = 1; step < loaders[0].steps_per_epoch(); ++step) {
      for (const auto& row : global_step(loaders, deal, step).rows) {
        samples.push_back(row.document);
      }
    }
    std::vector<Row> rows;
    int64_t num_targets = 0;
    for (int64_t k = 0; k < loaders[0].num_eval_batches(); ++k) {
      for (const auto& loader : loaders) {
        const auto batch = loader.eval_batch(k);
        num_targets += batch.num_targets;
        append_rows(batch, rows);
      }
    }
    EXPECT_EQ(num_targets, loaders[0].eval_counts().targets);
    for (const auto& row : rows) samples.push_back(row.document);
    std::sort(samples.begin(), samples.end());
    ASSERT_EQ(samples.size(), 31u);
    for (int64_t i = 0; i < 31; ++i) EXPECT_EQ(samples[i], i);
  }
}

TEST_F(LoaderTest, SamplesAreLimited) {
  options_.data.max_train_samples = 10;
  options_.data.max_eval_samples = 3;
  options_.data.eval_file = options_.data.train_file;
  options_.eval_batch = 4;
  const auto limited = loader({1, 4, 1}, 0);
  EXPECT_EQ(limited.num_samples(), 10);
  EXPECT_EQ(limited.num_eval_samples(), 3);
  for (int64_t step = 0; step < 3; ++step) {
    for (const int64_t sample : limited.batches(step).samples) EXPECT_LT(sample, 10);
  }
}

TEST_F(LoaderTest, DigestTellsDataAndBlockSizeApart) {
  const auto first = loader({1, 1, 1}, 0).data_digest();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(loader({2, 3, 1}, 1).data_digest(), first);
  options_.data.block_size = 5;
  EXPECT_NE(loader({1, 1, 1}, 0).data_digest(), first);
  options_.data.block_size = 4;
  options_.data.dataloader_drop_last = true;  // other steps, other order
  EXPECT_NE(loader({1, 1, 1}, 0).data_digest(), first);
  options_.data.dataloader_drop_last = false;
  write_tokens(122);
  EXPECT_NE(loader({1, 1, 1}, 0).data_digest(), first);
}

TEST_F(LoaderTest, ForeignTokensAreRefused) {
  options_.vocab_size = 124;  // the largest id is 123
  loader({1, 1, 1}, 0);
  options_.vocab_size = 50;
  const auto message = refusal<UserError>([&] { loader({1, 1, 1}, 0); });
  EXPECT_PRED2(contains, message, "train.bin: token 49 has id 50");
  EXPECT_PRED2(contains, message, "vocab_size is 50");
  options_.data.train_file = (folder_ / "train.txt").string();
  write_file_atomically(options_.data.train_file, "0123");
  options_.vocab_size = 256;
  EXPECT_THROW(loader({1, 1, 1}, 0), UserError);
  options_.vocab_size = 257;
  loader({1, 1, 1}, 0);
}

// Samples of 1 to 7 tokens, of which the first part predicts nothing, as in a conversation.
class RaggedSource final : public SampleSource {
 public:
  explicit RaggedSource(int64_t count) : count_(count) {}

  int64_t count() const override { return count_; }
  int64_t length(int64_t sample) const override { return 1 + sample * 5 % 7; }
  int64_t num_targets(int64_t sample) const override {
    return length(sample) - first_target(sample);
  }
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    ASSERT_EQ(std::ssize(tokens), length(sample));
    ASSERT_EQ(std::ssize(targets), length(sample));
    for (int64_t t = 0; t < length(sample); ++t) {
      tokens[t] = 10 * (sample + 1) + t;
      targets[t] = t < first_target(sample) ? tensor::kIgnore : tokens[t] + 1;
    }
  }
  // At least one target, so that a row is told from an absent one.
  int64_t first_target(int64_t sample) const { return sample % length(sample); }

 private:
  int64_t count_;
};

class RaggedLoaderTest : public testing::Test {
 protected:
  static constexpr int64_t kCount = 23;

  std::vector<Loader> ranks(const Deal& deal) const {
    const LoaderOptions options{.per_device_batch = deal.per_device,
                                .accumulation = deal.accumulation,
                                .eval_batch = eval_ ? 2 : 0,
                                .seed = 5};
    std::vector<Loader> loaders;
    for (int rank = 0; rank < deal.size; ++rank) {
      RunSamples samples{.train = {source_, train_}, .digest = "ragged"};
      if (eval_) samples.eval = ChosenSamples{source_, *eval_};
      loaders.emplace_back(std::move(samples), options, rank, deal.size);
    }
    return loaders;
  }

  Row row_of(int64_t sample, int64_t epoch) const {
    const auto length = static_cast<size_t>(source_->length(sample));
    Row row{.tokens = std::vector<int64_t>(length),
            .targets = std::vector<int64_t>(length),
            .document = epoch * kCount + sample};
    source_->read(sample, row.tokens, row.targets);
    return row;
  }

  std::shared_ptr<const RaggedSource> source_ = std::make_shared<RaggedSource>(kCount);
  SampleSet train_{kCount};
  std::optional<SampleSet> eval_;
};

TEST_F(RaggedLoaderTest, EverySampleOncePerEpochWithItsOwnTargetsForEverySplit) {
  // 8 ranks of 4 rows: two ranks go empty.
  const Deal deals[] = {{1, 6, 1}, {1, 1, 6}, {2, 3, 1}, {2, 1, 3}, {3, 2, 1}, {8, 4, 1}};
  for (const auto& deal : deals) {
    const auto loaders = ranks(deal);
    const auto steps = loaders[0].steps_per_epoch();
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> seen;
      for (int64_t step = epoch * steps; step < (epoch + 1) * steps; ++step) {
        const auto whole = global_step(loaders, deal, step);
        ASSERT_EQ(whole.rows.size(), whole.samples.size());
        int64_t num_targets = 0;
        for (size_t j = 0; j < whole.rows.size(); ++j) {
          EXPECT_EQ(whole.rows[j], row_of(whole.samples[j], epoch));
          num_targets += source_->num_targets(whole.samples[j]);
        }
        EXPECT_EQ(whole.num_targets, num_targets);
        seen.insert(seen.end(), whole.samples.begin(), whole.samples.end());
      }
      std::ranges::sort(seen);
      ASSERT_EQ(std::ssize(seen), kCount);
      for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(seen[i], i);
    }
  }
}

TEST_F(RaggedLoaderTest, TheOrderIsThatOfBlocksAndNoSplitChangesIt) {
  const SamplePlan plan(SampleSet(kCount), {.global_batch = 6, .seed = 5});
  for (const auto& deal : {Deal{1, 6, 1}, Deal{2, 3, 1}, Deal{3, 1, 2}}) {
    const auto loaders = ranks(deal);
    for (int64_t step = 0; step < 8; ++step) {
      EXPECT_EQ(global_step(loaders, deal, step).samples, plan.step_plan(step).samples);
    }
  }
}

TEST_F(RaggedLoaderTest, RowsArePaddedToTheLongestOfTheirMicroBatchAlone) {
  const Deal deal{2, 2, 2};
  const auto loaders = ranks(deal);
  for (int64_t step = 0; step < loaders[0].steps_per_epoch(); ++step) {
    for (int64_t rank = 0; rank < 2; ++rank) {
      const auto batches = loaders[rank].batches(step);
      for (int64_t micro = 0; micro < 2; ++micro) {
        const auto& batch = batches.micro_batches[micro];
        int64_t longest = 1;
        for (int64_t row = 0; row < 2; ++row) {
          const auto at = static_cast<size_t>((micro * 2 + rank) * 2 + row);
          if (at < batches.samples.size()) {
            longest = std::max(longest, source_->length(batches.samples[at]));
          }
        }
        EXPECT_EQ(batch.length, longest);
      }
    }
  }
}

TEST_F(RaggedLoaderTest, ResumeIsASeek) {
  const Deal deal{2, 2, 1};
  const auto undisturbed = ranks(deal);
  std::vector<GlobalStep> steps;
  for (int64_t step = 0; step < 15; ++step) steps.push_back(global_step(undisturbed, deal, step));
  const auto resumed = ranks(deal);
  const int64_t step = resumed[0].step_of(steps[6].samples_end);
  EXPECT_EQ(step, 7);
  for (const int64_t again : {step, int64_t{14}, int64_t{0}}) {
    EXPECT_EQ(global_step(resumed, deal, again), steps[again]);
  }
}

TEST_F(RaggedLoaderTest, HeldOutSamplesAreEvaluatedOnceAndNeverTrainedOn) {
  train_ = SampleSet(kCount, 30, 5, Holdout::kKept);
  eval_ = SampleSet(kCount, 30, 5, Holdout::kHeldOut);
  for (int size = 1; size <= 5; ++size) {
    const Deal deal{size, 2, 1};
    const auto loaders = ranks(deal);
    EXPECT_EQ(loaders[0].num_eval_samples(), 7);
    std::vector<Row> rows;
    int64_t num_targets = 0;
    for (int64_t k = 0; k < loaders[0].num_eval_batches(); ++k) {
      for (const auto& loader : loaders) {
        const auto batch = loader.eval_batch(k);
        num_targets += batch.num_targets;
        append_rows(batch, rows);
      }
    }
    EXPECT_EQ(num_targets, loaders[0].eval_counts().targets);
    for (int64_t step = 0; step < loaders[0].steps_per_epoch(); ++step) {
      for (const auto& row : global_step(loaders, deal, step).rows) rows.push_back(row);
    }
    std::ranges::sort(rows, {}, &Row::document);
    ASSERT_EQ(std::ssize(rows), kCount);
    for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(rows[i], row_of(i, 0));
  }
}

}  // namespace
}  // namespace skein::data
