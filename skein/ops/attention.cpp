// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <vector>

#include "skein/core/error.h"
#include "skein/ops/attention/shared_attention.h"

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

// q (B, T, H, D), or (T, H, D) of a run of documents.
at::Tensor flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const tensor::DocumentRun* run, const AttentionOptions& options) {
  std::optional<at::Tensor> bounds;
  if (run) bounds = run->bounds;
  const int64_t longest = run ? run->longest : q.size(1);
  std::optional<int64_t> left, right;
  if (options.window > 0) {
    left = options.window - 1;
    right = 0;
  }
  const auto found = at::_flash_attention_forward(
      q, k, v, bounds, bounds, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, options.scale, left, right);
  return std::get<0>(found);
}

at::Tensor windowed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options) {
  if (!fits_flash(q)) return unfused(q, k, v, options);
  const auto rows = [](const at::Tensor& x) { return x.transpose(1, 2); };
  return rows(flash(rows(q), rows(k), rows(v), /*run=*/nullptr, options));
}

// A document that continues another one is computed as a whole, and its own rows are taken.
at::Tensor one_by_one(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const tensor::DocumentRun& run, const AttentionOptions& options) {
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < run.ends.size(); ++i) {
    const auto span = run.span(i), prompt = run.prompt_of(i);
    auto own = options;
    if (options.dropout.probability > 0) {
      own.dropout.documents = options.dropout.documents.narrow(0, static_cast<int64_t>(i), 1);
    }
    const auto whole = [&](const at::Tensor& x) {
      auto last = x.narrow(2, span.begin, span.length());
      if (prompt.length() == 0) return last;
      return at::cat({x.narrow(2, prompt.begin, prompt.length()), last}, 2);
    };
    outputs.push_back(causal_attention(whole(q), whole(k), whole(v), own)
                          .narrow(2, prompt.length(), span.length()));
  }
  return at::cat(outputs, 2);
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const tensor::DocumentRun& run, const AttentionOptions& options) {
  SKEIN_CHECK(q.size(0) == 1 && q.size(2) == run.ends.back(), "a run of documents is one row");
  if (q.is_meta()) return at::empty_like(q);
  const bool plain = options.dropout.probability == 0 && !options.cap;
  if (run.shared.any()) {
    const bool sees_all = options.window == 0 || options.window >= run.longest;
    const bool fits = plain && sees_all && (q.is_cpu() || fits_flash(q));
    return fits ? shared_attention(q, k, v, run, options.scale) : one_by_one(q, k, v, run, options);
  }
  if (!plain || !fits_flash(q)) return one_by_one(q, k, v, run, options);
  const auto rows = [](const at::Tensor& x) { return x.squeeze(0).transpose(0, 1); };  // (T, H, D)
  return flash(rows(q), rows(k), rows(v), &run, options).transpose(0, 1).unsqueeze(0);
}

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
