// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

at::Tensor longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Documents of two, one and three tokens.
HostBatch three_documents() {
  return {.rows = 1,
          .length = 6,
          .tokens = {1, 2, 3, 4, 5, 6},
          .targets = {2, kIgnore, kIgnore, 5, kIgnore, 7},
          .documents = {30, 10, 20},
          .num_targets = 3,
          .document_ends = {2, 3, 6}};
}

TEST(Batch, ARunKnowsItsDocuments) {
  const auto batch = to_device(three_documents(), at::kCPU);
  ASSERT_TRUE(batch.run);
  const auto& run = *batch.run;
  EXPECT_TRUE(at::equal(batch.tokens, longs({1, 2, 3, 4, 5, 6}).unsqueeze(0)));
  EXPECT_TRUE(at::equal(batch.documents, longs({30, 10, 20})));
  EXPECT_TRUE(at::equal(run.bounds, at::tensor({0, 2, 3, 6}, at::kInt)));
  EXPECT_TRUE(at::equal(run.positions, longs({0, 1, 0, 0, 1, 2})));
  EXPECT_TRUE(at::equal(run.documents, longs({30, 30, 10, 20, 20, 20})));
  EXPECT_TRUE(at::equal(run.places, longs({0, 3, 5})));
  EXPECT_EQ(run.longest, 3);
  EXPECT_TRUE(at::equal(to_device(batch, at::kCPU).run->positions, run.positions));
}

TEST(Batch, EqualRowsAreNoRun) {
  auto host = three_documents();
  host.document_ends.clear();
  host.documents = {30};
  EXPECT_FALSE(to_device(host, at::kCPU).run);
}

TEST(Batch, RefusesARunThatDoesNotFillItsRow) {
  auto host = three_documents();
  host.document_ends = {2, 3, 5};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  host.document_ends = {2, 2, 6};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  host.document_ends = {2, 6};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
}

}  // namespace
}  // namespace skein::tensor
