// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "skein/ops/device.h"

namespace skein::ops {
namespace {

struct AttentionCase {
  at::Tensor q, k, v;

  AttentionCase() {
    at::manual_seed(2);
    q = at::randn({2, 4, 5, 6}, at::kDouble).set_requires_grad(true);
    k = at::randn({2, 2, 5, 6}, at::kDouble).set_requires_grad(true);
    v = at::randn({2, 2, 5, 6}, at::kDouble).set_requires_grad(true);
  }

  // One query at a time, as the definition says. `kept` (B, H, T, T) multiplies the probabilities.
  at::Tensor by_definition(double scale, const at::Tensor& kept, int64_t window = 5,
                           double cap = 1e9) const {
    std::vector<at::Tensor> rows;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t t = 0; t < 5; ++t) {
          const int64_t seen = std::min(t + 1, window), first = t + 1 - seen;
          const auto keys = k[b][h / 2].narrow(0, first, seen),
                     values = v[b][h / 2].narrow(0, first, seen);
          const auto scores = (keys.mv(q[b][h][t]) * (scale / cap)).tanh() * cap;
          const auto weights = scores.exp();
          const auto probability = weights / weights.sum();
          rows.push_back(values.t().mv(probability * kept[b][h][t].narrow(0, first, seen)));
        }
      }
    }
    return at::stack(rows).view({2, 4, 5, 6});
  }

  void expect_equal(const at::Tensor& found, const at::Tensor& expected) const {
    EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-12));
    const auto gradients = torch::autograd::grad({found.pow(2).sum()}, {q, k, v});
    const auto wanted = torch::autograd::grad({expected.pow(2).sum()}, {q, k, v});
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(gradients[i], wanted[i], 1e-9, 1e-11)) << i;
    }
  }
};

const auto kAll = [] { return at::ones({2, 4, 5, 5}, at::kDouble); };

TEST(CausalAttention, EqualsItsDefinitionWithGroupedHeads) {
  const AttentionCase c;
  c.expect_equal(causal_attention(c.q, c.k, c.v), c.by_definition(1 / std::sqrt(6.0), kAll()));
  c.expect_equal(causal_attention(c.q, c.k, c.v, {.scale = 0.3}), c.by_definition(0.3, kAll()));
}

TEST(CausalAttention, SeesTheWindowAlone) {
  const AttentionCase c;
  for (const int64_t window : {1, 3, 5, 8}) {
    c.expect_equal(causal_attention(c.q, c.k, c.v, {.scale = 0.3, .window = window}),
                   c.by_definition(0.3, kAll(), window));
  }
}

TEST(CausalAttention, CapsScores) {
  const AttentionCase c;
  c.expect_equal(causal_attention(c.q, c.k, c.v, {.scale = 0.3, .cap = 0.5}),
                 c.by_definition(0.3, kAll(), 5, 0.5));
  c.expect_equal(causal_attention(c.q, c.k, c.v, {.scale = 0.3, .window = 2, .cap = 0.5}),
                 c.by_definition(0.3, kAll(), 2, 0.5));
}

TEST(CausalAttention, DropsProbabilitiesByTheKeyedMask) {
  const AttentionCase c;
  const Dropout dropout{0.4, dropout_stream({.seed = 1}, 2, DropoutSite::kAttention),
                        at::tensor({8, 3}, at::kLong)};
  const auto kept = attention_dropout(kAll(), dropout);
  c.expect_equal(causal_attention(c.q, c.k, c.v, {.scale = 0.5, .dropout = dropout}),
                 c.by_definition(0.5, kept));
}

tensor::DocumentRun run_of(std::vector<int32_t> ends, at::Device device) {
  std::vector<int32_t> bounds{0};
  tensor::DocumentRun run;
  for (const int32_t end : ends) {
    run.longest = std::max<int64_t>(run.longest, end - bounds.back());
    bounds.push_back(end);
  }
  run.bounds = at::tensor(bounds, at::kInt).to(device);
  run.ends = std::move(ends);
  return run;
}

TEST(DocumentAttention, EqualsTheDocumentsAlone) {
  const AttentionCase c;
  const Dropout dropout{0.4, dropout_stream({.seed = 1}, 2, DropoutSite::kAttention),
                        at::tensor({8, 3, 5}, at::kLong)};
  const auto q = c.q.narrow(0, 0, 1), k = c.k.narrow(0, 0, 1), v = c.v.narrow(0, 0, 1);
  const auto run = run_of({2, 3, 5}, at::kCPU);
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.window = 1}, AttentionOptions{.cap = 0.5},
        AttentionOptions{.dropout = dropout}}) {
    const auto found = document_attention(q, k, v, run, options);
    int64_t begin = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t length = run.ends[static_cast<size_t>(i)] - begin;
      auto own = options;
      if (own.dropout.probability > 0) own.dropout.documents = dropout.documents.narrow(0, i, 1);
      const auto part = [&](const at::Tensor& x) { return x.narrow(2, begin, length); };
      const auto alone = causal_attention(part(q), part(k), part(v), own);
      EXPECT_TRUE(at::allclose(part(found), alone, 1e-12, 1e-14)) << i;
      begin += length;
    }
  }
}

// Three answers of one prompt: each as the end of a document that is computed as a whole, also
// where only the slow path knows how.
TEST(DocumentAttention, AnswersSeeTheirPrompt) {
  const AttentionCase c;
  const tensor::HostBatch host{.rows = 1,
                               .length = 5,
                               .tokens = {1, 2, 3, 4, 5},
                               .targets = std::vector<int64_t>(5, tensor::kIgnore),
                               .documents = {7, 7, 8, 9},
                               .document_ends = {2, 3, 4, 5},
                               .continues = {-1, 0, 0, 0}};
  const auto batch = tensor::to_device(host, at::kCPU);
  const auto of = [](const at::Tensor& x) { return x.narrow(0, 0, 1); };
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.scale = 0.3}, AttentionOptions{.window = 2},
        AttentionOptions{.window = 3}, AttentionOptions{.cap = 0.5},
        AttentionOptions{.window = 2, .cap = 0.5}}) {
    const auto found = document_attention(of(c.q), of(c.k), of(c.v), *batch.run, options);
    std::vector<at::Tensor> parts;
    for (int64_t t = 2; t < 5; ++t) {
      const auto whole = [&](const at::Tensor& x) {
        return at::cat({of(x).narrow(2, 0, 2), of(x).narrow(2, t, 1)}, 2);
      };
      const auto rows = causal_attention(whole(c.q), whole(c.k), whole(c.v), options);
      parts.push_back(rows.narrow(2, t == 2 ? 0 : 2, t == 2 ? 3 : 1));
    }
    c.expect_equal(found, at::cat(parts, 2));
  }
}

// The varlen kernel, and a window's, against the formula in float64.
TEST(DocumentAttention, OnGpusEqualsTheReference) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(3);
  const auto make = [](int64_t heads) {
    return at::randn({1, heads, 300, 64}, at::kDouble).to(at::kBFloat16).to(at::kDouble);
  };
  const auto host = std::vector{make(8), make(2), make(2)};
  const std::vector<int32_t> ends{7, 8, 200, 300};
  for (const int64_t window : {0, 16}) {
    const AttentionOptions options{.scale = 0.2, .window = window};
    std::vector<std::vector<at::Tensor>> gradients;
    std::vector<at::Tensor> outputs;
    for (const bool cuda : {false, true}) {
      std::vector<at::Tensor> in;
      for (const auto& x : host) {
        in.push_back(
            (cuda ? x.to(at::kCUDA).to(at::kBFloat16) : x).detach().set_requires_grad(true));
      }
      const auto run = run_of(ends, cuda ? at::Device(at::kCUDA) : at::Device(at::kCPU));
      outputs.push_back(document_attention(in[0], in[1], in[2], run, options));
      gradients.push_back(torch::autograd::grad({outputs.back().pow(2).sum()}, in));
    }
    const auto near = [](const at::Tensor& found, const at::Tensor& expected) {
      const auto distance = (found.cpu().to(at::kDouble) - expected).norm() / expected.norm();
      EXPECT_LT(distance.item<double>(), 0.01);
    };
    near(outputs[1], outputs[0]);
    for (size_t i = 0; i < 3; ++i) near(gradients[1][i], gradients[0][i]);
  }
}

// In float32 too: torch's kernels would otherwise hold the scores, 8 GiB here.
TEST(Attention, GroupedHeadsHoldNoScoresOnGpus) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto options = at::TensorOptions(at::kCUDA).dtype(dtype);
    const auto make = [&](int64_t heads) {
      return at::randn({1, heads, 16384, 64}, options).set_requires_grad(true);
    };
    const auto q = make(8), k = make(2), v = make(2);
    const auto before = device_memory(true);
    const auto out = causal_attention(q, k, v, {});
    torch::autograd::grad({out.sum()}, {q, k, v});
    const int64_t most = std::max(before.peak, before.allocated + (int64_t{1} << 30));
    EXPECT_LE(device_memory(true).peak, most) << dtype;
  }
}

}  // namespace
}  // namespace skein::ops
