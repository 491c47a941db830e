// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/kv_cache.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/ops/decode/paged_attention.h"

namespace skein::model {
namespace {

KvShape stored_shape(KvShape shape, bool cuda) {
  if (cuda) shape.head_dim = plan::cache_channels(shape.head_dim);
  return shape;
}

// (B, H, T, D) -> (N, H, stored channels)
at::Tensor to_tokens(const at::Tensor& x, int64_t channels) {
  const auto tokens = x.transpose(1, 2).flatten(0, 1);
  const auto missing = channels - tokens.size(2);
  return missing == 0 ? tokens : at::constant_pad_nd(tokens, {0, missing});
}

}  // namespace

KvCache::KvCache(const KvShape& shape, const at::TensorOptions& options)
    : shape_(stored_shape(shape, options.device().is_cuda())),
      options_(options.requires_grad(false)),
      addresses_(at::zeros({2 * shape.blocks}, options_.dtype(at::kLong))) {}

int64_t KvCache::page_bytes() const {
  return kPageTokens * shape_.bytes_per_token(static_cast<int64_t>(options_.dtype().itemsize()));
}

void KvCache::reserve(int64_t pages) {
  if (pages == pages_) return;
  memory_.clear();
  pages_ = 0;  // until all memory is there
  if (pages == 0) return;
  auto addresses = at::empty({2 * shape_.blocks}, at::kLong);
  std::vector<at::Tensor> memory;
  for (int64_t i = 0; i < addresses.numel(); ++i) {
    memory.push_back(at::empty({pages, kPageTokens, shape_.key_heads, shape_.head_dim}, options_));
    addresses.mutable_data_ptr<int64_t>()[i] =
        reinterpret_cast<int64_t>(memory.back().mutable_data_ptr());
  }
  addresses_.copy_(addresses);
  memory_ = std::move(memory);
  pages_ = pages;
}

at::Tensor KvCache::attend(size_t block, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const ops::AttentionOptions& options) const {
  SKEIN_CHECK(options.dropout.probability == 0, "what is remembered is not dropped");
  const ops::PagedKeys keys{.addresses = addresses_,
                            .block = static_cast<int64_t>(block),
                            .page_tokens = kPageTokens,
                            .pages = pass_.pages,
                            .rows = pass_.rows,
                            .positions = pass_.positions};
  const auto stored = [&](const at::Tensor& x) { return to_tokens(x, shape_.head_dim); };
  ops::store_keys(stored(k), stored(v), keys);
  if (pass_.beginnings) return ops::document_attention(q, k, v, *pass_.beginnings, options);
  const ops::PagedOptions paged{
      .scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3)))),
      .window = options.window,
      .cap = options.cap.value_or(0)};
  const auto found =
      ops::paged_attention(stored(q), shape_.key_heads, keys, paged).narrow(-1, 0, q.size(3));
  return found.unflatten(0, {q.size(0), q.size(2)}).transpose(1, 2);
}

void KvCache::copy_pages(const at::Tensor& from, const at::Tensor& to) {
  for (auto& memory : memory_) memory.index_copy_(0, to, memory.index_select(0, from));
}

}  // namespace skein::model
