// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace skein::algorithms {
namespace {

constexpr int64_t kNone = tensor::kIgnore;

std::vector<double> values_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// Three documents, of which the first is no answer (a prompt that two others share, say).
TEST(AnswerSums, AreOverTheTargetsOfEachAnswer) {
  auto answers = std::make_shared<tensor::HostAnswers>();
  answers->documents = {2, 1};
  const tensor::HostBatch run{.rows = 1,
                              .length = 7,
                              .tokens = {1, 2, 3, 4, 5, 6, 7},
                              .targets = {2, kNone, 4, 5, kNone, kNone, 8},
                              .documents = {0, 1, 2},
                              .num_targets = 4,
                              .document_ends = {2, 5, 7},
                              .answers = answers};
  const auto batch = tensor::to_device(run, at::kCPU);
  // One number for each target: of the first document 1, of the second 10 and 100, …
  const auto values = at::tensor({1.0, 10.0, 100.0, 1000.0}, at::kDouble);
  EXPECT_EQ(values_of(answer_sums(values, *batch.answers)), (std::vector<double>{1000, 110}));
  EXPECT_EQ(values_of(answer_sums(values, *batch.answers,
                                  at::tensor({0.5, 9.0, 1.0, 0.25}, at::kDouble).view({2, 2}))),
            (std::vector<double>{500, 35}));
  EXPECT_TRUE(at::equal(batch.answers->ends, at::tensor({6, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.answers->num_targets, at::tensor({1, 2}, at::kLong)));

  const tensor::HostBatch rows{.rows = 3,
                               .length = 3,
                               .tokens = {1, 2, 0, 3, 4, 5, 6, 7, 0},
                               .targets = {2, kNone, kNone, 4, 5, kNone, kNone, 8, kNone},
                               .documents = {0, 1, 2},
                               .num_targets = 4,
                               .row_lengths = {2, 3, 2},
                               .answers = answers};
  const auto padded = tensor::to_device(rows, at::kCPU);
  const auto all = at::arange(9, at::kDouble).view({3, 3});
  EXPECT_EQ(values_of(answer_sums(all, *padded.answers)), (std::vector<double>{7, 3 + 4}));
  EXPECT_TRUE(at::equal(padded.answers->ends, at::tensor({7, 5}, at::kLong)));
}

}  // namespace
}  // namespace skein::algorithms
