// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What attention remembers of the tokens before, so that the next token costs one token.
//
// Keys and values of kPageTokens tokens of a text are a page. Which pages a text has says a table
// of the caller (rollout/page_book.h): texts that begin alike can share them. Kernels find the
// memory through a table of addresses, so that a captured graph outlives it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "skein/ops/attention.h"
#include "skein/plan/cost/cache_page.h"
#include "skein/tensor/batch.h"

namespace skein::model {

struct KvShape {
  int64_t blocks = 0, key_heads = 0, head_dim = 0;

  int64_t bytes_per_token(int64_t element_bytes) const {
    return 2 * blocks * key_heads * head_dim * element_bytes;
  }
};

// B rows, T new tokens, N = B · T tokens of a pass, H heads (G for keys and values), D channels
class KvCache {
 public:
  static constexpr int64_t kPageTokens = plan::kCachePageTokens;

  // Of a model that computes in the dtype and on the device of `options`.
  KvCache(const KvShape& shape, const at::TensorOptions& options);

  int64_t page_bytes() const;
  int64_t pages() const { return pages_; }
  // Memory for so many pages, in place of what there was.
  void reserve(int64_t pages);
  // All of it goes back; what the cache held is lost.
  void release() { reserve(0); }

  // What the tokens of the next pass are. They are stored, and see their text up to themselves.
  struct Pass {
    at::Tensor positions;  // (N) int64: of each token in its text
    at::Tensor pages;      // (R, P) int32: of each text, in order
    at::Tensor rows{};     // (N) int32: the text of each token; undefined: token n is of text n
    // The tokens are whole texts behind each other, or their beginnings: they see only themselves.
    std::shared_ptr<const tensor::DocumentRun> beginnings{};
  };
  void begin(Pass pass) { pass_ = std::move(pass); }
  const at::Tensor& positions() const { return pass_.positions; }
  // For models: q (B, H, T, D), k and v (B, G, T, D) -> (B, H, T, D), without dropout.
  at::Tensor attend(size_t block, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionOptions& options) const;

  // (n) int64 each.
  void copy_pages(const at::Tensor& from, const at::Tensor& to);

 private:
  KvShape shape_;  // as it is stored
  at::TensorOptions options_;
  int64_t pages_ = 0;
  std::vector<at::Tensor> memory_;  // keys and values of block after block: (pages, tokens, G, D)
  at::Tensor addresses_;            // (2 · blocks) int64, of `memory_`
  Pass pass_;
};

}  // namespace skein::model
