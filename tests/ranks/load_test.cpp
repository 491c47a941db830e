// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A rank that loads its shard does not become as large as the model on the way.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/log.h"
#include "skein/core/testing.h"
#include "tests/ranks/load_case.h"
#include "tests/ranks/process_ranks.h"

namespace skein::ranks {
namespace {

TEST(Load, ARankGrowsByItsShard) {
  const auto folder = make_temporary_folder("load");
  const auto small = make_model(folder / "small", 64), model = make_model(folder / "model", 768);
  for (const int stage : {0, 3}) {
    for (const auto& text : run_on_processes(load_text(stage, small, model), 4)) {
      const double grown = std::stod(text);
      fmt::print("stage {}, 4 ranks: {:.3f} of the model\n", stage, grown);
      if (stage == 3) {
        EXPECT_LE(grown, 0.35);
        EXPECT_GE(grown, 0.2) << "where is the shard?";
      } else {
        EXPECT_GE(grown, 0.9) << "memory is not seen";
      }
    }
  }
  fs::remove_all(folder);
}

// Each tensor is quantised as it is read: linear weights take half a byte and their scales, what
// else there is (here 15 % of the model) two. That is 0.38 of the model in 16 bits, and beside it
// the largest tensor passes in fp32. With a copy of all it would be 1.38.
TEST(Load, FourBitsNeverGrowByA16BitCopy) {
  const auto folder = make_temporary_folder("load");
  const auto small = make_model(folder / "small", 64), model = make_model(folder / "model", 768);
  for (const auto& [stage, ranks] : {std::pair(0, 1), std::pair(3, 2)}) {
    for (const auto& text :
         run_on_processes(load_text(stage, small, model, Held::kFourBits), ranks)) {
      const double grown = std::stod(text);
      fmt::print("4 bits, stage {}, {} ranks: {:.3f} of the model in 16 bits\n", stage, ranks,
                 grown);
      EXPECT_LE(grown, 0.75);
      EXPECT_GE(grown, 0.37 / ranks) << "where are the weights?";
    }
  }
  fs::remove_all(folder);
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
