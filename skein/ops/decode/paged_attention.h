// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Attention of single tokens to what is remembered of their texts, page by page: decoding.
//
// A page holds the keys of `page_tokens` tokens, (page_tokens, G, D); position p of a text lies in
// its page p / page_tokens. Where the pages of a block begin is read from memory: a captured graph
// goes on when they have moved.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::ops {

struct PagedKeys {
  at::Tensor addresses;  // (2 · blocks) int64: of keys and values of block after block
  int64_t block = 0;
  int64_t page_tokens = 0;  // a power of two
  at::Tensor pages;         // (R, P) int32: the pages of each text
  at::Tensor rows;          // (N) int32: the text of each token; undefined: token n is of text n
  at::Tensor positions;     // (N) int64: of each token in its text
};

struct PagedOptions {
  double scale = 1;    // of the scores
  int64_t window = 0;  // how many positions a token sees, its own among them; 0: all
  double cap = 0;      // scores become cap · tanh(score / cap); 0: they stay
};

// Puts k and v (N, G, D) where their tokens' pages have them.
void store_keys(const at::Tensor& k, const at::Tensor& v, const PagedKeys& keys);

// q (N, H, D), each over its text up to itself, or the last of it that its window holds -> (N, H,
// D). Probabilities are formed in fp32, or fp64. On GPUs D is a multiple of 8, up to 256.
at::Tensor paged_attention(const at::Tensor& q, int64_t key_heads, const PagedKeys& keys,
                           const PagedOptions& options);

}  // namespace skein::ops
