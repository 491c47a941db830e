// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/decode/paged_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "skein/core/error.h"
#include "skein/ops/decode/paged_attention_kernel.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {
namespace {

PagedPlace place_of(const PagedKeys& keys, int64_t key_heads, const at::Tensor& x) {
  const auto tokens = x.size(0);
  SKEIN_CHECK(keys.positions.numel() == tokens, "a position for each token");
  SKEIN_CHECK(keys.rows.defined() ? keys.rows.numel() == tokens : keys.pages.size(0) == tokens,
              "a text for each token");
  SKEIN_CHECK(std::has_single_bit(static_cast<uint64_t>(keys.page_tokens)), "a page's tokens");
  SKEIN_CHECK(keys.positions.is_contiguous() && keys.pages.is_contiguous(), "kernels read rows");
  return {.addresses = keys.addresses.const_data_ptr<int64_t>() + 2 * keys.block,
          .pages = keys.pages.const_data_ptr<int32_t>(),
          .pages_per_row = keys.pages.size(1),
          .rows = keys.rows.defined() ? keys.rows.const_data_ptr<int32_t>() : nullptr,
          .positions = keys.positions.const_data_ptr<int64_t>(),
          .page_shift = std::countr_zero(static_cast<uint64_t>(keys.page_tokens)),
          .tokens = tokens,
          .key_heads = static_cast<int>(key_heads),
          .head_dim = static_cast<int>(x.size(2)),
          .type = tensor::dtype_of(x.scalar_type())};
}

// Heads and channels of a token lie together.
at::Tensor with_whole_tokens(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous();
}

void store_keys_on_cpu(const StoreKeysCall& call) {
  const auto& place = call.place;
  const auto element = dtype_bytes(place.type);
  const auto token_bytes =
      static_cast<size_t>(place.key_heads) * static_cast<size_t>(place.head_dim) * element;
  for (int64_t token = 0; token < place.tokens; ++token) {
    const int64_t text = place.rows ? place.rows[token] : token;
    const int64_t position = place.positions[token];
    const int64_t page = place.pages[text * place.pages_per_row + (position >> place.page_shift)];
    const int64_t in_page = position & ((int64_t{1} << place.page_shift) - 1);
    const auto row = static_cast<size_t>((page << place.page_shift) + in_page);
    const auto put = [&](int64_t address, const void* from, int64_t stride) {
      const auto begin = static_cast<size_t>(token * stride) * element;
      std::memcpy(at_address<std::byte>(address) + row * token_bytes,
                  static_cast<const std::byte*>(from) + begin, token_bytes);
    };
    put(place.addresses[0], call.k, call.k_stride);
    put(place.addresses[1], call.v, call.v_stride);
  }
}

}  // namespace

void store_keys(const at::Tensor& k, const at::Tensor& v, const PagedKeys& keys) {
  const auto own_k = with_whole_tokens(k), own_v = with_whole_tokens(v);
  const StoreKeysCall call{.place = place_of(keys, k.size(1), k),
                           .k = own_k.const_data_ptr(),
                           .v = own_v.const_data_ptr(),
                           .k_stride = own_k.stride(0),
                           .v_stride = own_v.stride(0)};
  if (k.is_cpu()) return store_keys_on_cpu(call);
  store_keys_on_cuda(call);
}

at::Tensor paged_attention(const at::Tensor& q, int64_t key_heads, const PagedKeys& keys,
                           const PagedOptions& options) {
  SKEIN_CHECK(q.size(1) % key_heads == 0, "heads share keys evenly");
  const auto input = with_whole_tokens(q);
  const auto output = at::empty(q.sizes(), q.options());
  PagedAttentionCall call{.place = place_of(keys, key_heads, input),
                          .q = input.const_data_ptr(),
                          .q_stride = input.stride(0),
                          .y = output.mutable_data_ptr(),
                          .heads = static_cast<int>(q.size(1)),
                          .scale = options.scale,
                          .cap = options.cap,
                          .window = options.window};
  if (q.is_cpu()) {
    paged_attention_on_cpu(call);
    return output;
  }
  SKEIN_CHECK(q.size(2) <= 256 && q.size(2) % 8 == 0,
              "paged attention on GPUs takes heads of up to 256 channels, in eights");
  call.splits = paged_splits(call.place);
  at::Tensor parts;
  if (call.splits > 1) {
    const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    parts = at::empty({q.size(0), q.size(1), call.splits, q.size(2) + 2}, q.options().dtype(wide));
    call.parts = parts.mutable_data_ptr();
  }
  paged_attention_on_cuda(call);
  return output;
}

}  // namespace skein::ops
