// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What LoRA adds to a matrix, row by row: W + scale · left · right, in fp32.
//
// A linear layer stores (out, in): left is B, right is A. A Conv1D layer (in, out) and an embedding
// (tokens, width) store the transpose: left is Aᵀ, right Bᵀ.

#include <cstdint>
#include <span>
#include <vector>

namespace skein::convert {

struct LowRank {
  uint64_t rows = 0;
  uint64_t rank = 0;
  uint64_t columns = 0;
  std::vector<float> left;   // (rows, rank)
  std::vector<float> right;  // (rank, columns)
  float scale = 1;
};

// `block` is whole rows of W, from `first_row` on; each sum runs over the rank in its order, on any
// number of threads alike.
void add_low_rank(const LowRank& update, uint64_t first_row, std::span<float> block, int threads);

std::vector<float> transposed(std::span<const float> matrix, uint64_t rows, uint64_t columns);

}  // namespace skein::convert
