// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace skein::model {
namespace {

// That of the flat layout: offsets and shards are multiples of it.
constexpr int64_t kAlignment = 128;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Padded elements of each unit's buffer: a multiple of alignment x ranks.
std::vector<int64_t> unit_sizes(const Shapes& shapes, int64_t ranks) {
  std::vector<int64_t> sizes(shapes.units.size(), 0);
  for (const auto& parameter : shapes.parameters) {
    sizes[static_cast<size_t>(parameter.unit)] += round_up(parameter.numel(), kAlignment);
  }
  for (auto& size : sizes) size = round_up(size, kAlignment * ranks);
  return sizes;
}

}  // namespace

int64_t state_bytes_per_element(int64_t weight_bytes) {
  return weight_bytes == 2 ? 12 : 2 * weight_bytes;
}

FlatBytes flat_bytes(const Shapes& shapes, const MemoryQuestion& question) {
  const auto sizes = unit_sizes(shapes, question.ranks);
  int64_t whole = 0, roots = 0, largest = 0;
  int64_t blocks = 0;
  for (size_t unit = 0; unit < sizes.size(); ++unit) {
    whole += sizes[unit];
    if (shapes.units[unit].root) {
      roots += sizes[unit];
    } else {
      largest = std::max(largest, sizes[unit]);
      ++blocks;
    }
  }
  const int64_t shard = whole / question.ranks;
  const int64_t moving = roots + std::min<int64_t>(2, blocks) * largest;
  FlatBytes bytes;
  bytes.weights = (question.stage >= 3 ? shard : whole) * question.weight_bytes;
  bytes.gradients = (question.stage >= 2 ? shard : whole) * question.gradient_bytes;
  bytes.states =
      (question.stage >= 1 ? shard : whole) * state_bytes_per_element(question.weight_bytes);
  if (question.stage >= 2) bytes.transient += moving * question.gradient_bytes;
  if (question.stage >= 3) bytes.transient += moving * question.weight_bytes;
  return bytes;
}

// What backward of one block reads: inputs of norms and projections, queries, keys, values and the
// attention's output, and the MLP's inner values (before and after the activation).
Activations activation_bytes(const Dimensions& d, const MemoryQuestion& question) {
  const int64_t rows_tokens = question.rows * question.tokens;
  const int64_t inner = (d.gated ? 3 : 2) * d.inner;
  const int64_t per_block = 4 * d.channels + 2 * d.query_width + 2 * d.key_width + inner;
  const int64_t kept =
      question.recompute ? d.layers * d.channels + per_block : d.layers * per_block;
  const int64_t ends = 4 * d.channels;  // embedding, final norm, their gradients
  Activations result;
  result.bytes = question.weight_bytes * rows_tokens * (kept + ends);
  result.formula = fmt::format(
      "{} bytes x {} rows x {} tokens x ({} + 4 x {} channels); one block keeps {} = 4 x {} + "
      "2 x {} queries + 2 x {} keys + {} x {} inner",
      question.weight_bytes, question.rows, question.tokens,
      question.recompute ? fmt::format("{} layers x {} + {}", d.layers, d.channels, per_block)
                         : fmt::format("{} layers x {}", d.layers, per_block),
      d.channels, per_block, d.channels, d.query_width, d.key_width, d.gated ? 3 : 2, d.inner);
  return result;
}

}  // namespace skein::model
