// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Sums over rows, in raw pointers: the gradients of biases and of norms' weights. In two stages and
// a fixed order: rows into fp32 parts, parts into the result.

#include "skein/core/dtype.h"

namespace skein::ops {

// (rows, columns) contiguous, columns a multiple of 8, aligned to sixteen bytes -> (columns).
struct ColumnSumCall {
  const void* x = nullptr;
  float* parts = nullptr;  // (column_sum_parts(rows, columns), columns)
  void* sum = nullptr;     // in `type`, as x
  int64_t rows = 0;
  int64_t columns = 0;
  DType type = DType::kF32;
};

constexpr int kColumnSumTile = 256;     // columns that a block of bf16 has
constexpr int kColumnSumBlocks = 1056;  // eight for each multiprocessor of an H200

// Depends on the shape alone. At least 64 rows a part: fewer would be all second stage.
inline int column_sum_parts(int64_t rows, int64_t columns) {
  const int64_t tiles = (columns + kColumnSumTile - 1) / kColumnSumTile;
  const int64_t most = kColumnSumBlocks / tiles, wanted = rows / 64;
  const int64_t parts = wanted < most ? wanted : most;
  return static_cast<int>(parts < 1 ? 1 : parts);
}

void column_sum_on_cuda(const ColumnSumCall& call);

// The second stage alone: `parts` (num_parts, columns) -> `sum` (columns).
struct PartSumCall {
  const float* parts = nullptr;
  void* sum = nullptr;  // in `type`
  int num_parts = 0;
  int64_t columns = 0;
  DType type = DType::kF32;
};

void part_sum_on_cuda(const PartSumCall& call);

}  // namespace skein::ops
