// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Blocks over ranks that are threads: the same shards whoever computes them, also in lockstep.
#include "skein/gradient_features/collect.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/merge.h"
#include "skein/gradient_features/test_models.h"

namespace skein::gradient_features {
namespace {

// Of lengths 4 to 9; the middle third predicts.
class TinySource final : public data::SampleSource {
 public:
  explicit TinySource(int64_t count) : count_(count) {}
  int64_t count() const override { return count_; }
  int64_t length(int64_t sample) const override { return 4 + sample * 5 % 6; }
  int64_t num_targets(int64_t sample) const override { return length(sample) - 2; }
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = (sample * 7 + static_cast<int64_t>(t * t) * 3) % 17;
      const bool has_target = t >= 1 && t + 1 < tokens.size();
      targets[t] = has_target ? (sample + static_cast<int64_t>(t) * 5) % 17 : tensor::kIgnore;
    }
  }

 private:
  int64_t count_;
};

constexpr int64_t kSamples = 11;  // in blocks of 4: three of them

class CollectTest : public TemporaryFolder {
 protected:
  struct Start {
    int ranks = 1;
    int stage = 0;
    std::string output = "out";
    InfoType info = InfoType::kGrads;
    std::vector<std::string> words{"adapter"};
    int64_t stop_after = INT64_MAX;  // times that a rank has asked whether to
    int odd_rank = -1;               // that was given another length
    bool is_huge = false;            // more than any disk holds
    bool is_broken = false;          // a weight is no number
    bool skips_non_finite = false;
  };

  CollectionFacts facts_of(const Start& start, const std::vector<std::string>& parameters) const {
    const bool is_grads = start.info == InfoType::kGrads;
    return {.info_type = start.info,
            .projection = is_grads ? ProjectionKind::kDense : ProjectionKind::kNone,
            .dimensions = {is_grads ? 40 : 1},
            .projection_digest = digest("p"),
            .model_digest = digest("m"),
            .data_digest = digest("d"),
            .data_files = {{kSamples, digest("f")}},
            .num_samples = kSamples,
            .samples_per_block = 4,
            .batch_tokens = batch_tokens_,
            .parameters = parameters};
  }

  CollectResult collect_on(const Start& start) {
    std::atomic<int64_t> blocks = 0;
    std::atomic<bool> stopped = false;
    comm::run_ranks(start.ranks, [&](comm::Group& group) {
      at::set_num_threads(1);  // those of several ranks would spin for each other
      const bool lockstep = start.stage == 3;
      HeldModel held(model::tiny_config(model::kTinyLlama),
                     model::tiny_lora(R"("target_modules": "all-linear")"), start.stage, false,
                     lockstep ? group : comm::Group(), at::kFloat);
      const auto names = choose_parameters(held.model->table(), start.words);
      const TinySource source(kSamples);
      RowSamples samples{source, {}};
      for (int64_t i = 0; i < kSamples; ++i) samples.rows.push_back(i);
      auto facts = facts_of(start, names);
      if (group.rank() == start.odd_rank) facts.max_length = 77;
      if (start.is_huge) {
        facts.dimensions = {kMaxDimension};
        facts.samples_per_block = 1;
        facts.num_samples = 1 << 24;
        facts.data_files = {{facts.num_samples, digest("f")}};
      }
      if (start.is_broken) {
        for (const auto& slice : held.sharded.kept_slices(Access::kSet)) slice.data.fill_(NAN);
      }
      const CollectTask task{.model = *held.model,
                             .sharded = held.sharded,
                             .samples = samples,
                             .facts = std::move(facts),
                             .features = {.parameters = names, .dimension = 40},
                             .output = folder_ / start.output,
                             .skips_non_finite = start.skips_non_finite,
                             .lockstep = lockstep};
      int64_t asked = 0;
      CollectRanks ranks{group, [&] {
                           const auto seen = board::own_board(/*most=*/0);
                           if (seen) phases_[static_cast<size_t>(seen->phase)] = true;
                           return ++asked > start.stop_after;
                         }};
      const auto result = collect(task, ranks);
      blocks += result.blocks;
      if (result.stopped) stopped = true;
    });
    return {.stopped = stopped, .blocks = blocks};
  }

  std::string merged(const std::string& output) {
    merge_collection({.output = folder_ / output});
    return read_file(folder_ / output / kMergedFile);
  }

  int64_t batch_tokens_ = 10;                                  // one or two samples a batch
  std::array<std::atomic<bool>, board::kNumPhases> phases_{};  // in which somebody has asked
};

// A rank without a block, and blocks of different numbers of batches.
TEST_F(CollectTest, ShardedParametersGiveTheSameBytes) {
  collect_on({});
  const auto expected = merged("out");
  for (const int ranks : {1, 2, 4}) {
    const auto output = fmt::format("of-{}", ranks);
    EXPECT_EQ(collect_on({.ranks = ranks, .stage = 3, .output = output}).blocks, 3);
    EXPECT_EQ(merged(output), expected) << ranks;
    for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
      EXPECT_TRUE(fs::exists(folder_ / output / fmt::format("rank_{}/gradients.pt", rank)));
    }
  }
  const auto losses = [&](int ranks, int stage) {
    const auto output = fmt::format("loss-{}", ranks);
    collect_on({.ranks = ranks, .stage = stage, .output = output, .info = InfoType::kLoss});
    return merged(output);
  };
  EXPECT_EQ(losses(2, 3), losses(1, 0));
}

// Of a block that was begun nothing is kept, wherever in it the stop is seen; what comes after it
// is collected by the next start.
TEST_F(CollectTest, AStopIsSeenInsideABatch) {
  batch_tokens_ = 100;  // a batch is a block
  for (const auto& words : {std::vector<std::string>{"adapter"}, {"adapter", "norm"}}) {
    const auto whole = fmt::format("whole-{}", words.size());
    collect_on({.output = whole, .words = words});
    for (const int stage : {0, 3}) {
      if (stage == 3 && words.size() > 1) continue;  // no taps
      const auto output = fmt::format("stage-{}-{}", stage, words.size());
      const auto start = [&](int64_t stop_after) {
        return collect_on({.ranks = 2,
                           .stage = stage,
                           .output = output,
                           .words = words,
                           .stop_after = stop_after});
      };
      for (const int64_t asks : {0, 1, 2, 15}) {
        const auto result = start(asks);
        EXPECT_TRUE(result.stopped) << asks;
        EXPECT_EQ(result.blocks, 0) << asks;
        EXPECT_FALSE(fs::exists(folder_ / output / "rank_0/gradients.pt"));
      }
      // Into the last round, where one has nothing to do.
      const auto result = start(words.size() > 1 ? 170 : 45);
      EXPECT_TRUE(result.stopped);
      EXPECT_GT(result.blocks, 0);
      EXPECT_FALSE(start(INT64_MAX).stopped);
      EXPECT_EQ(merged(output), merged(whole));
    }
  }
}

TEST_F(CollectTest, SaysWhatItIsDoing) {
  const board::Board page(0);
  board::attach_board(page.descriptor());
  collect_on({});
  EXPECT_TRUE(phases_[static_cast<size_t>(board::Phase::kBackward)]);
  EXPECT_FALSE(phases_[static_cast<size_t>(board::Phase::kLoading)]);
}

// As ranks that were started by hand may be.
TEST_F(CollectTest, RanksMustAgree) {
  for (const int stage : {0, 3}) {
    const auto message =
        refusal<UserError>([&] { collect_on({.ranks = 3, .stage = stage, .odd_rank = 1}); });
    EXPECT_PRED2(contains, message, "max_length is 0 on rank 0 and 77 on rank 1.");
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
}

TEST_F(CollectTest, NamesThatAreTakenAreRefusedBeforeAnythingIsComputed) {
  fs::create_directories(folder_ / "out/rank_1/gradients.pt");
  EXPECT_PRED2(contains, refusal<UserError>([&] { collect_on({.ranks = 2}); }),
               "rank_1/gradients.pt is a folder, where a file belongs: remove it");
  fs::remove_all(folder_ / "out");
  write("out/rank_0", "");
  EXPECT_PRED2(contains, refusal<UserError>([&] { collect_on({.ranks = 2}); }),
               "rank_0 is no folder");
  EXPECT_FALSE(fs::exists(folder_ / "out/collection.json"));
}

TEST_F(CollectTest, ADiskThatIsTooSmallIsLeftWithoutFacts) {
  EXPECT_PRED2(contains, refusal<DiskFull>([&] { collect_on({.is_huge = true}); }),
               "the disk is too small");
  EXPECT_FALSE(fs::exists(folder_ / "out/collection.json"));
  collect_on({});
}

TEST_F(CollectTest, WeightsThatAreNotFinite) {
  EXPECT_PRED2(contains, refusal<IoError>([&] { collect_on({.is_broken = true}); }),
               "no gradient of samples 0 to 3 is finite: look at the model's weights");
  const auto message = refusal<IoError>([&] {
    collect_on({.ranks = 2, .output = "skipped", .is_broken = true, .skips_non_finite = true});
  });
  EXPECT_PRED2(contains, message, "none of the 11 samples has a row: look at the model's weights");
  EXPECT_FALSE(fs::exists(folder_ / "skipped/rank_0/gradients.pt"));
}

TEST_F(CollectTest, ShardedParametersMustHaveTaps) {
  const auto message = refusal<UserError>(
      [&] { collect_on({.ranks = 2, .stage = 3, .words = {"adapter", "norm"}}); });
  EXPECT_PRED2(contains, message, "model.norm.weight");
  EXPECT_PRED2(contains, message, "distributed_strategy=ddp");
  EXPECT_EQ(collect_on({.ranks = 2, .words = {"adapter", "norm"}}).blocks, 3);
}

}  // namespace
}  // namespace skein::gradient_features
