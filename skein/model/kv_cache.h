// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What attention remembers of the tokens before, so that the next token costs one token.
//
// Rows may have different lengths. Prompts of different lengths go in padded on the right, and the
// padding is not counted: a token attends to positions up to its own, so the padding of a row is
// never seen and the next tokens overwrite it.
//
// Memory: 2 · blocks · rows · capacity · key heads · channels per head, taken at the first use.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "skein/ops/attention.h"

namespace skein::model {

// B rows, T new tokens, H heads (G for keys and values), D channels per head
class KvCache {
 public:
  // `capacity`: positions per row.
  KvCache(int64_t rows, int64_t capacity);

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  std::span<const int64_t> lengths() const { return lengths_; }

  // These rows remain, in this order. Copies them.
  void keep_rows(std::span<const int64_t> rows);

  struct Place {
    at::Tensor positions;               // (B, T), of positions()
    ops::AttentionOptions attention{};  // without dropout
  };
  // For models; callers use Model::decode.
  at::Tensor positions(int64_t num_tokens, at::Device device) const;  // (B, T): the next ones
  // Stores k and v (B, G, T, D) there and attends from q (B, H, T, D) to every position up to its
  // own that its window holds -> (B, H, T, D). Probabilities are formed in fp32 at least.
  at::Tensor attend(size_t block, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const Place& place);
  void set_lengths(std::vector<int64_t> lengths);

 private:
  struct Block {
    at::Tensor keys, values;  // (B, G, capacity, D)
  };
  Block& block(size_t index, const at::Tensor& k);
  bool is_empty() const;

  int64_t capacity_;
  std::vector<int64_t> lengths_;  // on the host: nothing waits for a device to know them
  std::vector<Block> blocks_;
};

}  // namespace skein::model
