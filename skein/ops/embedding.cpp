// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/embedding.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Fewer tokens than this take torch's other CUDA kernel, which rounds every 32 of them.
constexpr int64_t kSortedOnCuda = 3073;

// On CUDA torch sorts many tokens and sums each run of them in fp32. Few are made many with tokens
// that are in no vocabulary, which the kernel leaves out as its padding.
at::Tensor sorted_backward(const at::Tensor& gradient, const at::Tensor& tokens, int64_t rows) {
  const int64_t missing = kSortedOnCuda - tokens.numel();
  if (missing <= 0) return at::embedding_dense_backward(gradient, tokens, rows, -1, false);
  const auto more = at::zeros({missing}, tokens.options()).fill_(rows);
  const auto nothing = at::zeros({missing, gradient.size(1)}, gradient.options());
  return at::embedding_dense_backward(at::cat({gradient, nothing}), at::cat({tokens, more}), rows,
                                      /*padding_idx=*/rows, false);
}

struct ShortEmbedding : Function<ShortEmbedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& tokens) {
    context->save_for_backward({tokens});
    context->saved_data["rows"] = weight.size(0);
    return at::embedding(weight, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto tokens = context->get_saved_variables()[0].flatten();
    const auto rows = context->saved_data["rows"].toInt();
    const auto gradient = gradients[0].flatten(0, -2);
    if (gradient.is_cuda()) return {sorted_backward(gradient, tokens, rows), at::Tensor()};
    const auto sums =
        at::embedding_dense_backward(gradient.to(at::kFloat), tokens, rows, -1, false);
    return {sums.to(gradient.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& tokens) {
  // at::embedding has no meta kernel in C++; indexing has one, but a slower backward.
  if (weight.is_meta()) return weight.index({tokens});
  const bool is_short = c10::elementSize(weight.scalar_type()) < 4;
  return is_short ? ShortEmbedding::apply(weight, tokens) : at::embedding(weight, tokens);
}

}  // namespace skein::ops
