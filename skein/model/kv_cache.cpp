// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/kv_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "skein/core/error.h"

namespace skein::model {
namespace {

at::Tensor to_tensor(std::span<const int64_t> values, at::Device device) {
  auto tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor.to(device);
}

// Unfused: rows end at different places, and fused kernels would need a mask tensor.
at::Tensor attend_up_to(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                        const KvCache::Place& place) {
  const auto& [positions, attention] = place;
  const auto rows = q.size(0), groups = keys.size(1), tokens = q.size(2), width = keys.size(2);
  const auto group = q.size(1) / groups;
  // The heads that share keys become one matrix, so that the cache is not repeated.
  const auto shared = q.reshape({rows, groups, group * tokens, q.size(3)});
  const double scale = attention.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const auto scores = ops::soft_cap(at::matmul(shared, keys.transpose(2, 3)) * scale, attention.cap)
                          .view({rows, groups, group, tokens, width});
  const auto keys_at = at::arange(width, positions.options());
  auto unseen = keys_at.gt(positions.unsqueeze(2));  // (B, T, W)
  if (attention.window > 0) {
    unseen = unseen.logical_or_(keys_at.le(positions.unsqueeze(2) - attention.window));
  }
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto masked = scores.to(wide).masked_fill(unseen.view({rows, 1, 1, tokens, width}),
                                                  -std::numeric_limits<double>::infinity());
  const auto probabilities =
      at::softmax(masked, 4).to(q.scalar_type()).view({rows, groups, group * tokens, width});
  return at::matmul(probabilities, values).view(q.sizes());
}

}  // namespace

KvCache::KvCache(int64_t rows, int64_t capacity)
    : capacity_(capacity), lengths_(static_cast<size_t>(rows), 0) {}

void KvCache::keep_rows(std::span<const int64_t> rows) {
  std::vector<int64_t> lengths;
  for (const auto row : rows) lengths.push_back(lengths_.at(static_cast<size_t>(row)));
  lengths_ = std::move(lengths);
  if (blocks_.empty()) return;
  const auto index = to_tensor(rows, blocks_[0].keys.device());
  for (auto& [keys, values] : blocks_) {
    keys = keys.index_select(0, index);
    values = values.index_select(0, index);
  }
}

at::Tensor KvCache::positions(int64_t num_tokens, at::Device device) const {
  const auto begin = to_tensor(lengths_, device);
  return begin.unsqueeze(1) + at::arange(num_tokens, begin.options());
}

at::Tensor KvCache::attend(size_t index, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const Place& place) {
  const auto tokens = q.size(2);
  auto& [keys, values] = block(index, k);
  const auto places = place.positions.view({rows(), 1, tokens, 1}).expand_as(k);
  keys.scatter_(2, places, k);
  values.scatter_(2, places, v);
  // Nothing before: what the tokens attend to is what came in.
  if (is_empty()) return ops::causal_attention(q, k, v, place.attention);
  const auto width = *std::ranges::max_element(lengths_) + tokens;
  return attend_up_to(q, keys.narrow(2, 0, width), values.narrow(2, 0, width), place);
}

void KvCache::set_lengths(std::vector<int64_t> lengths) {
  SKEIN_CHECK(lengths.size() == lengths_.size(), "one length per row");
  lengths_ = std::move(lengths);
}

KvCache::Block& KvCache::block(size_t index, const at::Tensor& k) {
  SKEIN_CHECK(index <= blocks_.size(), "blocks come in order");
  if (index == blocks_.size()) {
    // Zeros: what no row has reached is multiplied by a probability of 0, which NaN would survive.
    const auto make = [&] {
      return at::zeros({rows(), k.size(1), capacity_, k.size(3)}, k.options());
    };
    blocks_.push_back({make(), make()});
  }
  return blocks_[index];
}

bool KvCache::is_empty() const {
  return std::ranges::all_of(lengths_, [](int64_t length) { return length == 0; });
}

}  // namespace skein::model
