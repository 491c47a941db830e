// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace skein::ops {
namespace {

at::Tensor unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const AttentionOptions& options) {
  const int64_t group = q.size(1) / k.size(1), num_tokens = q.size(2);
  const auto keys = group == 1 ? k : k.repeat_interleave(group, 1);
  const auto values = group == 1 ? v : v.repeat_interleave(group, 1);
  const auto flags = q.options().dtype(at::kBool).requires_grad(false);
  const auto future = at::ones({num_tokens, num_tokens}, flags).triu(1);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const auto scores = (at::matmul(q, keys.transpose(2, 3)) * scale)
                          .masked_fill(future, -std::numeric_limits<double>::infinity());
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto probabilities = at::softmax(scores, 3, wide).to(q.scalar_type());  // (B, H, T, T)
  return at::matmul(attention_dropout(probabilities, options.dropout), values);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options) {
  if (q.is_meta()) return at::empty_like(q);  // no meta kernels in C++: shapes are all there is
  if (options.dropout.probability > 0) return unfused(q, k, v, options);
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
