// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention/shared_attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <vector>

namespace skein::ops {
namespace {

// A document alone, two answers of a prompt, five of another, one of a prompt of one token.
constexpr int64_t kTokens = 31;
tensor::Batch run_on(at::Device device) {
  tensor::HostBatch host{.rows = 1,
                         .length = kTokens,
                         .tokens = std::vector<int64_t>(kTokens),
                         .targets = std::vector<int64_t>(kTokens, tensor::kIgnore),
                         .document_ends = {3, 9, 13, 14, 16, 17, 20, 21, 22, 27, 28, 31},
                         .continues = {-1, -1, 1, 1, -1, 4, 4, 4, 4, 4, -1, 10}};
  host.documents.resize(host.document_ends.size());
  return tensor::to_device(host, device);
}

struct Inputs {
  at::Tensor q, k, v;

  std::vector<at::Tensor> all() const { return {q, k, v}; }
};

Inputs inputs_of(int64_t head_dim, at::TensorOptions options = at::kDouble) {
  at::manual_seed(4);
  // As models give them: rows of tokens, seen as heads.
  const auto make = [&](int64_t heads) {
    const auto rows = at::randn({1, kTokens, heads * head_dim}, at::kDouble).to(options);
    return rows.set_requires_grad(true);
  };
  return {make(4), make(2), make(2)};
}

at::Tensor heads(const at::Tensor& rows, int64_t head_dim) {
  return rows.unflatten(-1, {-1, head_dim}).transpose(1, 2);
}

// Each document as a whole, of which its own rows are taken.
at::Tensor by_documents(const Inputs& in, const tensor::DocumentRun& run, int64_t head_dim,
                        std::optional<double> scale = {}) {
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < run.ends.size(); ++i) {
    const auto span = run.span(i), prompt = run.prompt_of(i);
    const auto whole = [&](const at::Tensor& x) {
      return heads(
          at::cat({x.slice(1, prompt.begin, prompt.end), x.slice(1, span.begin, span.end)}, 1),
          head_dim);
    };
    const auto output = at::scaled_dot_product_attention(
        whole(in.q), whole(in.k), whole(in.v), /*attn_mask=*/{}, /*dropout_p=*/0.0,
        /*is_causal=*/true, scale, /*enable_gqa=*/true);
    outputs.push_back(output.slice(2, prompt.length()));
  }
  return at::cat(outputs, 2);
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  const auto wide = expected.cpu().to(at::kDouble);
  return ((found.cpu().to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, const Inputs& in,
                 const Inputs& other, double tolerance) {
  EXPECT_LE(distance(found, expected), tolerance);
  const auto weights = at::randn(expected.sizes(), at::kDouble);
  const auto gradient = [&](const at::Tensor& output, const Inputs& inputs) {
    return torch::autograd::grad(
        {(output * weights.to(output.options().requires_grad(false))).sum()}, inputs.all());
  };
  const auto gradients = gradient(found, in), wanted = gradient(expected, other);
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(distance(gradients[i], wanted[i]), tolerance) << i;
}

TEST(SharedAttention, TwoCallsAreOneSoftmax) {
  const auto batch = run_on(at::kCPU);
  const int64_t head_dim = 6;
  const auto in = inputs_of(head_dim);
  for (const std::optional<double> scale : {std::optional<double>(), std::optional(1.7)}) {
    const auto found = shared_attention(heads(in.q, head_dim), heads(in.k, head_dim),
                                        heads(in.v, head_dim), *batch.run, scale);
    expect_near(found, by_documents(in, *batch.run, head_dim, scale), in, in, 1e-13);
  }
}

TEST(SharedAttention, InSixteenBitsRoundsAsOneCall) {
  const auto batch = run_on(at::kCPU);
  const int64_t head_dim = 8;
  const auto in = inputs_of(head_dim, at::kBFloat16);
  const auto found = shared_attention(heads(in.q, head_dim), heads(in.k, head_dim),
                                      heads(in.v, head_dim), *batch.run);
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  expect_near(found, by_documents(in, *batch.run, head_dim), in, in, 0.02);
}

// Large scores: of either part the exponentials would overflow.
TEST(SharedAttention, MergesByLogarithms) {
  const auto batch = run_on(at::kCPU);
  const int64_t head_dim = 6;
  const auto in = inputs_of(head_dim);
  const auto found = shared_attention(heads(in.q, head_dim), heads(in.k, head_dim),
                                      heads(in.v, head_dim), *batch.run, 200);
  expect_near(found, by_documents(in, *batch.run, head_dim, 200), in, in, 1e-8);
}

TEST(SharedAttention, OnGpusEqualsTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const int64_t head_dim = 64;
  const auto host = run_on(at::kCPU), batch = run_on(at::kCUDA);
  const auto in = inputs_of(head_dim, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const auto wide = [](const at::Tensor& x) {
    return x.detach().cpu().to(at::kDouble).set_requires_grad(true);
  };
  const Inputs same{wide(in.q), wide(in.k), wide(in.v)};
  const auto found = shared_attention(heads(in.q, head_dim), heads(in.k, head_dim),
                                      heads(in.v, head_dim), *batch.run);
  expect_near(found, by_documents(same, *host.run, head_dim), in, same, 0.01);
}

}  // namespace
}  // namespace skein::ops
