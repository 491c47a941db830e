// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The sharding proof: stages 0-3 against each other, on threads and on processes.
//
// This program has three roles: the tests, a launcher (`--launch CASE FOLDER`), and one rank
// (`--rank CASE FOLDER`), so that process ranks start as users' ranks do.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "skein/core/file.h"
#include "skein/core/log.h"
#include "skein/launch/launcher.h"
#include "skein/launch/rank_environment.h"
#include "tests/ranks/training_case.h"

namespace skein::ranks {
namespace {

std::string self() { return fs::read_symlink("/proc/self/exe").string(); }

int launch_case(const TrainingCase& c, const std::string& folder) {
  return launch::launch({.local_ranks = c.ranks}, {self(), "--rank", c.text(), folder});
}

int run_rank(const TrainingCase& c, const fs::path& folder) {
  const auto environment = launch::from_environment();
  const auto store = launch::connect_store(environment);
  auto world = comm::connect(
      {.rank = environment.rank, .size = environment.size, .timeout = std::chrono::seconds(60)},
      *store);
  write_file_atomically(folder / std::to_string(environment.rank), run_case(c, world));
  world.shutdown();
  return 0;
}

std::vector<std::string> run_on_processes(const TrainingCase& c) {
  auto pattern = (fs::temp_directory_path() / "skein-ranks-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(self().c_str(), self().c_str(), "--launch", c.text().c_str(), folder.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << c.text();
  std::vector<std::string> texts;
  for (int rank = 0; status == 0 && rank < c.ranks; ++rank)
    texts.push_back(read_file(folder / std::to_string(rank)));
  fs::remove_all(folder);
  return texts;
}

void expect_close(const TrainingCase& a, const TrainingCase& b, double tolerance) {
  const auto left = numbers_of(run_on_threads(a)[0]), right = numbers_of(run_on_threads(b)[0]);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_LE(std::abs(left[i] - right[i]), tolerance * std::abs(left[i]))
        << a.text() << " | " << b.text();
  }
}

TEST(Sharding, StagesAreBitEqualOnThreads) {
  for (const auto& name : model_names()) {
    for (const int ranks : {2, 3}) {
      const auto expected = run_on_threads({.model = name, .ranks = ranks});
      for (const bool recompute : {false, true}) {
        for (const int stage : {0, 1, 2, 3}) {
          const TrainingCase c{
              .model = name, .stage = stage, .recompute = recompute, .ranks = ranks};
          EXPECT_EQ(run_on_threads(c), expected) << c.text();
        }
      }
    }
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

// Gloo's sums are formed in rank order too, so that processes repeat the threads bit for bit.
TEST(Sharding, ProcessesAreBitEqualToThreads) {
  for (const auto& name : {"llama_lora", "gpt2", "llama_tied"}) {
    for (const int ranks : {2, 3}) {
      const auto expected = run_on_threads({.model = name, .ranks = ranks});
      for (const int stage : {0, 1, 2, 3}) {
        const TrainingCase c{
            .model = name, .stage = stage, .recompute = stage % 2 == 1, .ranks = ranks};
        EXPECT_EQ(run_on_processes(c), expected) << c.text();
      }
    }
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
  const std::string role = argc > 3 ? argv[1] : "";
  if (role == "--launch")
    return skein::ranks::launch_case(skein::ranks::TrainingCase::parse(argv[2]), argv[3]);
  if (role == "--rank")
    return skein::ranks::run_rank(skein::ranks::TrainingCase::parse(argv[2]), argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
