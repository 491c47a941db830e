// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace skein::ops {
namespace {

// Which keys does a query not see? (T, T)
at::Tensor unseen(int64_t num_tokens, int64_t window, const at::TensorOptions& options) {
  const auto all = at::ones({num_tokens, num_tokens}, options);
  const auto future = all.triu(1);
  return window > 0 ? future.logical_or(all.tril(-window)) : future;
}

at::Tensor unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const AttentionOptions& options) {
  const int64_t group = q.size(1) / k.size(1), num_tokens = q.size(2);
  const auto keys = group == 1 ? k : k.repeat_interleave(group, 1);
  const auto values = group == 1 ? v : v.repeat_interleave(group, 1);
  const auto mask =
      unseen(num_tokens, options.window, q.options().dtype(at::kBool).requires_grad(false));
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const auto scores = soft_cap(at::matmul(q, keys.transpose(2, 3)) * scale, options.cap)
                          .masked_fill(mask, -std::numeric_limits<double>::infinity());
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto probabilities = at::softmax(scores, 3, wide).to(q.scalar_type());  // (B, H, T, T)
  return at::matmul(attention_dropout(probabilities, options.dropout), values);
}

// Does torch's FlashAttention-2 take it? It knows windows.
bool fits_flash(const at::Tensor& q) {
  return q.is_cuda() && q.element_size() == 2 && q.size(3) % 8 == 0 && q.size(3) <= 256;
}

at::Tensor windowed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options) {
  if (!fits_flash(q)) return unfused(q, k, v, options);
  const auto num_tokens = q.size(2);
  const auto found = at::_flash_attention_forward(
      q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, {}, num_tokens, num_tokens,
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, options.scale,
      /*window_size_left=*/options.window - 1, /*window_size_right=*/0);
  return std::get<0>(found).transpose(1, 2);
}

}  // namespace

at::Tensor soft_cap(const at::Tensor& x, std::optional<double> cap) {
  return cap ? (x / *cap).tanh() * *cap : x;
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options) {
  if (q.is_meta()) return at::empty_like(q);  // no meta kernels in C++: shapes are all there is
  if (options.dropout.probability > 0 || options.cap) return unfused(q, k, v, options);
  if (options.window > 0 && options.window < q.size(2)) return windowed(q, k, v, options);
  const bool grouped = q.size(1) != k.size(1);
  // torch's fused CUDA kernels share keys among heads in 16 bits only. Wider values would fall to
  // the formula, which holds (B, H, T, T) scores.
  if (grouped && q.is_cuda() && q.element_size() > 2) {
    const int64_t group = q.size(1) / k.size(1);
    return causal_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                            options);
  }
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, options.scale,
                                          /*enable_gqa=*/grouped);
}

}  // namespace skein::ops
