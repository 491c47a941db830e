// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::data {
namespace {

struct Split {
  int size;
  int64_t per_device, accumulation;
};

std::vector<int64_t> values(const at::Tensor& tensor) {
  const auto* first = tensor.data_ptr<int64_t>();
  return {first, first + tensor.numel()};
}

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

  Loader loader(const Split& split, int rank) const {
    auto options = options_;
    options.per_device_batch = split.per_device;
    options.accumulation = split.accumulation;
    return Loader(options, rank, split.size);
  }

  std::vector<Loader> ranks(const Split& split) const {
    std::vector<Loader> loaders;
    for (int rank = 0; rank < split.size; ++rank) loaders.push_back(loader(split, rank));
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

void append_rows(const tensor::Batch& batch, std::vector<Row>& rows) {
  const int64_t width = batch.tokens.size(1);
  const auto tokens = values(batch.tokens), targets = values(batch.targets);
  const auto documents = values(batch.documents);
  ASSERT_EQ(batch.targets.sizes(), batch.tokens.sizes());
  if (batch.num_targets == 0) {
    EXPECT_EQ(tokens, std::vector<int64_t>{0});
    EXPECT_EQ(targets, std::vector<int64_t>{tensor::kIgnore});
    EXPECT_EQ(documents.size(), 1u);
    return;
  }
  int64_t num_targets = 0;
  for (size_t b = 0; b < documents.size(); ++b) {
    Row row{.document = documents[b]};
    for (int64_t t = 0; t < width; ++t) {
      const auto at = b * width + t;
      if (tokens[at] == 0) {
        EXPECT_EQ(targets[at], tensor::kIgnore);
      } else {
        row.tokens.push_back(tokens[at]);
        row.targets.push_back(targets[at]);
      }
    }
    num_targets += static_cast<int64_t>(row.tokens.size()) - 1;
    rows.push_back(row);
  }
  EXPECT_EQ(num_targets, batch.num_targets);
}

// What all ranks together train on in a step, in dealing order.
struct GlobalStep {
  std::vector<Row> rows;
  std::vector<int64_t> samples;
  int64_t num_targets = 0, samples_end = 0;
  double epoch = 0;
  bool operator==(const GlobalStep&) const = default;
};

GlobalStep global_step(const std::vector<Loader>& ranks, const Split& split, int64_t step) {
  std::vector<StepBatches> parts;
  for (const auto& loader : ranks) parts.push_back(loader.batches(step));
  GlobalStep whole{.samples = parts[0].samples,
                   .num_targets = parts[0].num_targets,
                   .samples_end = parts[0].samples_end,
                   .epoch = parts[0].epoch};
  int64_t num_targets = 0;
  for (int64_t micro = 0; micro < split.accumulation; ++micro) {
    for (const auto& part : parts) {
      EXPECT_EQ(part.micro_batches.size(), static_cast<size_t>(split.accumulation));
      EXPECT_EQ(part.samples, whole.samples);
      EXPECT_EQ(part.num_targets, whole.num_targets);
      append_rows(part.micro_batches[micro], whole.rows);
      num_targets += part.micro_batches[micro].num_targets;
    }
  }
  EXPECT_EQ(num_targets, whole.num_targets);
  return whole;
}

TEST_F(LoaderTest, EverySplitOfAGlobalBatchTrainsOnTheSameRows) {
  const Split splits[] = {{1, 12, 1}, {1, 3, 4}, {1, 1, 12}, {2, 6, 1}, {2, 2, 3},
                          {3, 4, 1},  {3, 2, 2}, {4, 3, 1},  {4, 1, 3}};
  std::vector<GlobalStep> expected;
  for (const auto& split : splits) {
    const auto loaders = ranks(split);
    ASSERT_EQ(loaders[0].steps_per_epoch(), 3);
    std::vector<GlobalStep> steps;
    for (int64_t step = 0; step < 6; ++step) steps.push_back(global_step(loaders, split, step));
    if (expected.empty()) expected = steps;
    EXPECT_EQ(steps, expected) << split.size << " x " << split.per_device << " x "
                               << split.accumulation;
  }
  EXPECT_EQ(expected[2].samples.size(), 31u - 24);
  EXPECT_EQ(expected[3].samples_end, 31 + 12);
}

TEST_F(LoaderTest, RowsAreTheBlocksAndTargetsTheNextTokens) {
  const Split split{2, 3, 2};
  const auto loaders = ranks(split);
  for (int64_t step = 0; step < 6; ++step) {
    const auto whole = global_step(loaders, split, step);
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
        const Split split{size, per_device, accumulation};
        const auto loaders = ranks(split);
        std::vector<int64_t> documents;
        for (int64_t step = 0; step < 2 * loaders[0].steps_per_epoch(); ++step) {
          for (const auto& row : global_step(loaders, split, step).rows) {
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
  const Split one{1, 12, 1}, four{4, 1, 3};
  const auto alone = ranks(one), together = ranks(four);
  ASSERT_EQ(alone[0].steps_per_epoch(), 2);
  for (int64_t step = 0; step < 4; ++step) {
    const auto whole = global_step(together, four, step);
    EXPECT_EQ(whole.samples.size(), 12u);
    EXPECT_EQ(whole, global_step(alone, one, step));
  }
}

TEST_F(LoaderTest, ResumeIsASeek) {
  const Split split{1, 2, 2};
  const auto undisturbed = ranks(split);
  std::vector<GlobalStep> steps;
  for (int64_t step = 0; step < 20; ++step) steps.push_back(global_step(undisturbed, split, step));
  const auto resumed = ranks(split);
  for (const int64_t step : {19, 7, 8}) {
    EXPECT_EQ(global_step(resumed, split, step), steps[step]);
  }
}

TEST_F(LoaderTest, ReadingAheadChangesNothing) {
  const Split split{2, 2, 2};
  const auto ahead = ranks(split);
  options_.data.dataloader_num_workers = 0;
  const auto plain = ranks(split);
  for (const int64_t step : {0, 1, 2, 3, 9, 10, 4}) {
    EXPECT_EQ(global_step(ahead, split, step), global_step(plain, split, step));
  }
}

TEST_F(LoaderTest, EvaluationSeesEveryHeldOutSampleOnceAndTrainingNone) {
  options_.data.validation_split_percentage = 20;  // 6 of 31
  options_.eval_batch = 2;
  for (int size = 1; size <= 4; ++size) {
    const Split split{size, 2, 1};
    const auto loaders = ranks(split);
    EXPECT_EQ(loaders[0].num_samples(), 25);
    EXPECT_EQ(loaders[0].num_eval_samples(), 6);
    std::vector<int64_t> samples;
    for (const auto& row : global_step(loaders, split, 0).rows) samples.push_back(row.document);
    for (int64_t step = 1; step < loaders[0].steps_per_epoch(); ++step) {
      for (const auto& row : global_step(loaders, split, step).rows) {
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
    EXPECT_EQ(num_targets, loaders[0].num_eval_targets());
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

}  // namespace
}  // namespace skein::data
