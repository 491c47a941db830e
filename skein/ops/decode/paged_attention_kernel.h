// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between decode/paged_attention.cpp and its kernels, in raw pointers.

#include <cstdint>

#include "skein/core/dtype.h"

namespace skein::ops {

// An address that was read from memory.
template <typename T>
inline T* at_address(int64_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): that is what it is
}

// Where the keys of N tokens lie (see PagedKeys).
struct PagedPlace {
  const int64_t* addresses = nullptr;  // of the keys and of the values of this block
  const int32_t* pages = nullptr;      // (R, pages_per_row)
  int64_t pages_per_row = 0;
  const int32_t* rows = nullptr;  // (N), or null
  const int64_t* positions = nullptr;
  int page_shift = 0;  // a page holds 2 to this power of tokens
  int64_t tokens = 0;  // N
  int key_heads = 0, head_dim = 0;
  DType type = DType::kF32;
};

struct StoreKeysCall {
  PagedPlace place;
  const void *k = nullptr, *v = nullptr;  // (N, key_heads, head_dim)
  int64_t k_stride = 0, v_stride = 0;     // elements from token to token
};

struct PagedAttentionCall {
  PagedPlace place;
  const void* q = nullptr;  // (N, heads, head_dim)
  int64_t q_stride = 0;     // elements from token to token
  void* y = nullptr;        // (N, heads, head_dim), without gaps
  int heads = 0;
  double scale = 1, cap = 0;  // cap 0: none
  int64_t window = 0;         // 0: all
  // On a GPU a text is read by so many blocks, whose parts (N, heads, splits, head_dim + 2) are
  // joined; 1: no parts.
  int splits = 1;
  void* parts = nullptr;  // fp32, or fp64
};

void paged_attention_on_cpu(const PagedAttentionCall& call);
void store_keys_on_cuda(const StoreKeysCall& call);
void paged_attention_on_cuda(const PagedAttentionCall& call);
// How many blocks should read a text? Heads of a multiple of eight channels, up to 256.
int paged_splits(const PagedPlace& place);

}  // namespace skein::ops
