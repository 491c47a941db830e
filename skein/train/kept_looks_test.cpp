// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/kept_looks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::train {
namespace {

using KeptLooksTest = TemporaryFolder;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Of three pairs, of which the second is not in the split; and a pass that nobody asks for.
const SplitLooks kLooks{{-1, -2, kNone, kNone, -5, -6}, {}};

tensor::Answers answers_to(std::vector<int64_t> samples, int64_t each) {
  const auto count = std::ssize(samples) * each;
  return {.ends = at::empty({count}, at::kLong),
          .targets = at::empty({count, 1}, at::kLong),
          .num_targets = at::empty({count}, at::kLong),
          .samples = std::move(samples)};
}

TEST_F(KeptLooksTest, EachAnswerHasItsNumber) {
  KeptLooks looks;
  looks.set(data::Split::kTrain, kLooks);
  looks.set(data::Split::kEval, {{-7, -8}});
  const auto train = [&](const tensor::Answers& answers) {
    return looks.of(data::Split::kTrain, 0, answers);
  };
  EXPECT_TRUE(at::equal(train(answers_to({2, 0}, 2)), at::tensor({-5.0, -6.0, -1.0, -2.0})));
  EXPECT_TRUE(at::equal(looks.of(data::Split::kEval, 0, answers_to({1}, 1)), at::tensor({-8.0})));
  EXPECT_EQ(train(answers_to({}, 2)).numel(), 0);
  EXPECT_THROW(train(answers_to({1}, 2)), InternalError);
}

TEST_F(KeptLooksTest, AFileGivesThemBack) {
  write_looks(folder_ / "a", kLooks);
  const auto again = read_looks(folder_ / "a");
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0][0], -1);
  EXPECT_TRUE(std::isnan(again[0][2]));
  EXPECT_EQ(again[0][5], -6);
  EXPECT_TRUE(again[1].empty());
  EXPECT_TRUE(read_looks(folder_ / "absent").empty());
}

TEST_F(KeptLooksTest, WhatIsNotWholeIsNone) {
  write_looks(folder_ / "a", kLooks);
  const auto whole = read_file(folder_ / "a");
  for (size_t length = 0; length < whole.size(); ++length) {
    write("cut", whole.substr(0, length));
    EXPECT_TRUE(read_looks(folder_ / "cut").empty()) << length;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    auto changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    write("changed", changed);
    EXPECT_TRUE(read_looks(folder_ / "changed").empty()) << at;
  }
  write("longer", whole + "x");
  EXPECT_TRUE(read_looks(folder_ / "longer").empty());
}

}  // namespace
}  // namespace skein::train
