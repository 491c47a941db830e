// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/bench/bench.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skein::train {
namespace {

std::vector<int64_t> lengths_of(const tensor::HostBatch& batch) {
  std::vector<int64_t> lengths;
  int64_t begin = 0;
  for (const int64_t end : batch.document_ends) {
    lengths.push_back(end - begin);
    begin = end;
  }
  return lengths;
}

TEST(PackedRows, AreDocumentsThatFillTheRows) {
  const auto batch = packed_rows({.rows = 4, .tokens = 4096, .packed = true}, 1000);
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.length, 4 * 4096);
  EXPECT_EQ(std::ssize(batch.tokens), batch.length);
  EXPECT_EQ(std::ssize(batch.targets), batch.length);
  EXPECT_EQ(batch.documents.size(), batch.document_ends.size());
  const auto lengths = lengths_of(batch);
  EXPECT_GT(lengths.size(), 8U);
  EXPECT_LE(std::ranges::max(lengths), 2047);
  EXPECT_LT(std::ranges::max(batch.tokens), 1000);
  // No document goes over the end of a row.
  for (int64_t row = 1; row <= 4; ++row) {
    EXPECT_EQ(std::ranges::count(batch.document_ends, row * 4096), 1);
  }
  // Every token but a document's last predicts the next one.
  EXPECT_EQ(batch.num_targets, batch.length - std::ssize(lengths));
  EXPECT_EQ(batch.targets[0], batch.tokens[1]);
  for (const auto end : batch.document_ends) {
    EXPECT_EQ(batch.targets[static_cast<size_t>(end - 1)], tensor::kIgnore);
  }
  EXPECT_EQ(packed_rows({.rows = 4, .tokens = 4096}, 1000).tokens, batch.tokens);
}

TEST(PackedRows, MaskTheBeginningOfEveryDocument) {
  const auto batch = packed_rows({.rows = 2, .tokens = 512, .masked = 0.5}, 1000);
  int64_t targets = 0, begin = 0;
  for (const auto length : lengths_of(batch)) {
    const int64_t prompt = (length - 1) / 2;
    for (int64_t t = 0; t < length; ++t) {
      const auto target = batch.targets[static_cast<size_t>(begin + t)];
      EXPECT_EQ(target == tensor::kIgnore, t < prompt || t + 1 == length);
      targets += target != tensor::kIgnore;
    }
    begin += length;
  }
  EXPECT_EQ(batch.num_targets, targets);
}

}  // namespace
}  // namespace skein::train
