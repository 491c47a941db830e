// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Every subset of six blocks skipped by either of two ranks, at every stage, with frozen blocks,
// steps without backward, blocks used twice and several passes.
//
// The whole matrix (4096 pairs of subsets in 80 cases) runs with SKEIN_LONG=1 (make test-long);
// otherwise pairs are drawn by SKEIN_SEED.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "skein/core/log.h"
#include "tests/ranks/process_ranks.h"
#include "tests/ranks/skip_case.h"

namespace skein::ranks {
namespace {

bool is_long() { return std::getenv("SKEIN_LONG") != nullptr; }

unsigned seed() {
  const char* given = std::getenv("SKEIN_SEED");
  return given == nullptr ? 0 : static_cast<unsigned>(std::stoul(given));
}

std::vector<SkipPair> all_pairs() {
  std::vector<SkipPair> pairs;
  for (Subset first = 0; first < kNumSubsets; ++first) {
    for (Subset second = 0; second < kNumSubsets; ++second) pairs.push_back({first, second});
  }
  return pairs;
}

std::vector<SkipPair> draw_pairs(std::mt19937& draw, int count) {
  std::vector<SkipPair> pairs;
  for (int i = 0; i < count; ++i) pairs.push_back({draw() % kNumSubsets, draw() % kNumSubsets});
  return pairs;
}

SkipCase make_case(int stage, int frozen, int uses) {
  return {.stage = stage,
          .frozen = static_cast<Frozen>(frozen),
          .uses = static_cast<Uses>(uses),
          .recompute = (frozen + uses) % 2 == 1,
          .micro_batches = 1 + (frozen / 2 + uses) % 2};
}

class Skipping : public testing::TestWithParam<int> {};  // stages

TEST_P(Skipping, GradientsArePlainAutograds) {
  std::mt19937 draw(seed());
  for (int frozen = 0; frozen < kNumFrozen; ++frozen) {
    for (int uses = 0; uses < kNumUses; ++uses) {
      const auto c = make_case(GetParam(), frozen, uses);
      const auto pairs = is_long() ? all_pairs() : draw_pairs(draw, 24);
      EXPECT_EQ(run_skip_case(c, pairs), "") << c.text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stage, Skipping, testing::Values(0, 1, 2, 3));

// A dozen as processes, over Gloo: it reports nothing when collectives differ, but hangs or
// crashes.
TEST(SkippingProcesses, GradientsArePlainAutograds) {
  std::mt19937 draw(seed());
  for (int i = 0; i < 12; ++i) {
    // Every way of use at stage 3, then drawn ones.
    const auto c = i < kNumUses ? make_case(3, static_cast<int>(draw() % kNumFrozen), i)
                                : make_case(static_cast<int>(draw() % 4),
                                            static_cast<int>(draw() % kNumFrozen),
                                            static_cast<int>(draw() % kNumUses));
    const auto text = skip_text(c, draw_pairs(draw, 8));
    EXPECT_EQ(run_on_processes(text, /*ranks=*/2), (std::vector<std::string>{"", ""})) << text;
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
