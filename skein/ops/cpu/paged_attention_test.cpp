// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/decode/paged_attention.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "skein/ops/attention.h"

namespace skein::ops {
namespace {

constexpr int64_t kQueries = 4, kShared = 2, kWidth = 6, kPerPage = 4, kNumPages = 12;

// Texts of 9, 3 and 6 tokens in pages that lie in no order.
struct Texts {
  std::vector<int64_t> lengths{9, 3, 6};
  at::Tensor pages = at::tensor({7, 2, 10, 5, 0, 0, 1, 9, 0}, at::kInt).view({3, 3});
  at::Tensor memory, addresses;

  // NaN: what nobody has stored must not be seen.
  explicit Texts(at::ScalarType type)
      : memory(at::full({2, kNumPages, kPerPage, kShared, kWidth}, std::nan(""),
                        at::TensorOptions().dtype(type))),
        addresses(at::tensor({reinterpret_cast<int64_t>(memory[0].data_ptr()),
                              reinterpret_cast<int64_t>(memory[1].data_ptr())})) {}

  PagedKeys keys(const std::vector<int32_t>& rows, const std::vector<int64_t>& positions) const {
    return {.addresses = addresses,
            .block = 0,
            .page_tokens = kPerPage,
            .pages = pages,
            .rows = at::tensor(rows, at::kInt),
            .positions = at::tensor(positions)};
  }
};

struct Tokens {
  std::vector<int32_t> rows;
  std::vector<int64_t> positions;
};

Tokens all_tokens(const Texts& texts) {
  Tokens all;
  for (size_t text = 0; text < texts.lengths.size(); ++text) {
    for (int64_t at = 0; at < texts.lengths[text]; ++at) {
      all.rows.push_back(static_cast<int32_t>(text));
      all.positions.push_back(at);
    }
  }
  return all;
}

at::Tensor random(int64_t tokens, int64_t heads, at::ScalarType type) {
  return at::randn({tokens, heads, kWidth}, at::kDouble).to(type);
}

// Text by text as causal_attention() has it.
at::Tensor expected(const Texts& texts, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, const AttentionOptions& options) {
  auto found = at::empty_like(q);
  int64_t begin = 0;
  for (const auto length : texts.lengths) {
    const auto own = [&](const at::Tensor& x) {
      return x.narrow(0, begin, length).transpose(0, 1).unsqueeze(0);
    };
    const auto y = causal_attention(own(q), own(k), own(v), options);
    found.narrow(0, begin, length).copy_(y.squeeze(0).transpose(0, 1));
    begin += length;
  }
  return found;
}

PagedOptions paged(const AttentionOptions& options) {
  return {.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(kWidth))),
          .window = options.window,
          .cap = options.cap.value_or(0)};
}

TEST(PagedAttention, EqualsAttentionOverEachText) {
  at::manual_seed(3);
  const std::vector<AttentionOptions> cases{
      {}, {.scale = 0.3}, {.window = 2}, {.window = 100}, {.cap = 1.5}, {.window = 3, .cap = 2.0}};
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Texts texts(type);
    const auto [rows, positions] = all_tokens(texts);
    const auto count = static_cast<int64_t>(rows.size());
    const auto q = random(count, kQueries, type);
    const auto k = random(count, kShared, type), v = random(count, kShared, type);
    const auto keys = texts.keys(rows, positions);
    store_keys(k, v, keys);
    for (const auto& options : cases) {
      const auto found = paged_attention(q, kShared, keys, paged(options));
      const double bound = type == at::kDouble ? 1e-12 : 1e-5;
      EXPECT_TRUE(at::allclose(found, expected(texts, q, k, v, options), bound, bound));
    }
  }
}

TEST(PagedAttention, SixteenBitsAreWidenedOnce) {
  at::manual_seed(4);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Texts narrow(type), wide(at::kFloat);
    const auto [rows, positions] = all_tokens(narrow);
    const auto count = static_cast<int64_t>(rows.size());
    const auto q = random(count, kQueries, type);
    const auto k = random(count, kShared, type), v = random(count, kShared, type);
    store_keys(k, v, narrow.keys(rows, positions));
    store_keys(k.to(at::kFloat), v.to(at::kFloat), wide.keys(rows, positions));
    const auto found = paged_attention(q, kShared, narrow.keys(rows, positions), {.scale = 0.4});
    const auto exact =
        paged_attention(q.to(at::kFloat), kShared, wide.keys(rows, positions), {.scale = 0.4});
    EXPECT_TRUE(found.equal(exact.to(type)));
  }
}

// Rows need not be named where each token is of a text of its own, and tokens may lie apart.
TEST(PagedAttention, DecodesOneTokenOfEachText) {
  at::manual_seed(5);
  const Texts texts(at::kDouble);
  const auto [rows, positions] = all_tokens(texts);
  const auto count = static_cast<int64_t>(rows.size());
  const auto q = random(count, kQueries, at::kDouble);
  const auto kv = at::randn({count, 2, kShared, kWidth}, at::kDouble);
  const auto k = kv.select(1, 0), v = kv.select(1, 1);
  store_keys(k, v, texts.keys(rows, positions));
  const auto last = at::tensor({8, 11, 17});
  auto keys = texts.keys({}, {8, 2, 5});
  keys.rows = at::Tensor();
  const auto found = paged_attention(q.index_select(0, last), kShared, keys, paged({}));
  const auto all = expected(texts, q, k.contiguous(), v.contiguous(), {});
  EXPECT_TRUE(at::allclose(found, all.index_select(0, last), 1e-12, 1e-12));
}

}  // namespace
}  // namespace skein::ops
