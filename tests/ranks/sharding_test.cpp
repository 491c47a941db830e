// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The sharding proof: stages 0-3 against each other, on threads and on processes.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "skein/core/log.h"
#include "tests/ranks/process_ranks.h"
#include "tests/ranks/sample.h"

namespace skein::ranks {
namespace {

void expect_close(const TrainingCase& a, const TrainingCase& b, double tolerance) {
  const auto left = numbers_of(run_on_threads(a)[0]), right = numbers_of(run_on_threads(b)[0]);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_LE(std::abs(left[i] - right[i]), tolerance * std::abs(left[i]))
        << a.text() << " | " << b.text();
  }
}

TEST(Sharding, StagesAreBitEqualOnThreads) {
  std::vector<TrainingCase> cases;
  for (const auto& name : model_names()) {
    for (const int ranks : {2, 3}) {
      for (const bool recompute : {false, true}) {
        for (const int stage : {0, 1, 2, 3}) {
          cases.push_back({.model = name,
                           .stage = stage,
                           .recompute = recompute,
                           .stash = recompute && stage == 2,
                           .ranks = ranks});
        }
      }
    }
  }
  for (const auto& c : sample(cases, 24)) {
    EXPECT_EQ(run_on_threads(c), run_on_threads({.model = c.model, .ranks = c.ranks})) << c.text();
  }
}

TEST(Sharding, PairsAreBitEqualUnderAccumulation) {
  for (const auto& name : model_names()) {
    for (const int ranks : {2, 3}) {
      const auto at_stage = [&](int stage) {
        return TrainingCase{.model = name, .stage = stage, .micro_batches = 2, .ranks = ranks};
      };
      EXPECT_EQ(run_on_threads(at_stage(0)), run_on_threads(at_stage(1))) << name;
      EXPECT_EQ(run_on_threads(at_stage(2)), run_on_threads(at_stage(3))) << name;
      expect_close(at_stage(0), at_stage(2), 1e-5);
      auto left = at_stage(1), right = at_stage(3);
      left.float64 = right.float64 = true;
      expect_close(left, right, 1e-10);
    }
  }
}

TEST(Sharding, SplitsOverRanksAndMicroBatchesAgree) {
  for (const auto& name : model_names()) {
    for (const bool float64 : {false, true}) {
      const TrainingCase alone{.model = name, .micro_batches = 6, .float64 = float64};
      for (const int ranks : {2, 3}) {
        const TrainingCase split{.model = name,
                                 .stage = 3,
                                 .micro_batches = 6 / ranks,
                                 .float64 = float64,
                                 .ranks = ranks};
        expect_close(alone, split, float64 ? 1e-10 : 1e-5);
      }
    }
  }
}

TEST(Sharding, StagesAreBitEqualWhenSumsGoByNode) {
  for (const std::string name : {"llama", "gpt2_lora"}) {
    const auto at_stage = [&](int stage) {
      return TrainingCase{.model = name, .stage = stage, .ranks = 4, .local_size = 2};
    };
    const auto expected = run_on_threads(at_stage(0));
    for (const int stage : {1, 2, 3}) EXPECT_EQ(run_on_threads(at_stage(stage)), expected) << stage;
    for (const int stage : {0, 3}) EXPECT_EQ(run_on_processes(at_stage(stage)), expected) << stage;
    const TrainingCase flat{.model = name, .ranks = 4};
    EXPECT_NE(run_on_threads(flat), expected) << "another order of sums";
    expect_close(flat, at_stage(0), 1e-5);
  }
}

// Gloo's sums are formed in rank order too, so that processes repeat the threads bit for bit.
TEST(Sharding, ProcessesAreBitEqualToThreads) {
  std::vector<TrainingCase> cases;
  for (const auto& name : model_names()) {
    for (const int ranks : {2, 3}) {
      for (const int stage : {0, 1, 2, 3}) {
        // Both ways of checkpointing for every stage: off on two ranks, on with three.
        cases.push_back({.model = name, .stage = stage, .recompute = ranks == 3, .ranks = ranks});
      }
    }
  }
  for (const auto& c : sample(cases, 12)) {
    EXPECT_EQ(run_on_processes(c), run_on_threads({.model = c.model, .ranks = c.ranks}))
        << c.text();
  }
  for (const int stage : {0, 3}) {
    const TrainingCase c{.model = "gpt2_lora", .stage = stage, .micro_batches = 2, .ranks = 2};
    EXPECT_EQ(run_on_processes(c), run_on_threads(c)) << c.text();
  }
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) {
  skein::set_log_level(skein::LogLevel::kError);
  at::set_num_threads(1);  // ranks share the machine's cores
  if (const auto code = skein::ranks::play_role(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
