// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numbers>
#include <vector>

#include "skein/core/error.h"

namespace skein::model {
namespace {

using plan::Rope;

at::TensorOptions wide(const at::TensorOptions& options) {
  return options.dtype(at::kFloat).requires_grad(false);
}

at::Tensor one_minus(const at::Tensor& x) { return x.neg().add(1); }

// Slow pairs are slowed further, fast ones stay, those between are blended.
at::Tensor llama3(const Rope& rope, const at::Tensor& plain) {
  const auto original = static_cast<double>(rope.original_positions);
  const auto wavelength = plain.reciprocal() * (2 * std::numbers::pi);
  const auto is_slow = wavelength.gt(original / rope.low_frequency);
  const auto is_fast = wavelength.lt(original / rope.high_frequency);
  const auto slowed = at::where(is_slow, plain / rope.factor, plain);
  const auto share = (wavelength.reciprocal() * original - rope.low_frequency) /
                     (rope.high_frequency - rope.low_frequency);
  const auto blended = one_minus(share) * slowed / rope.factor + share * slowed;
  return at::where(is_fast.logical_or(is_slow), slowed, blended);
}

at::Tensor yarn(const Rope& rope, const at::TensorOptions& options) {
  const auto exponent =
      at::arange(0, rope.channels, 2, wide(options)) / static_cast<double>(rope.channels);
  const auto period = at::pow(rope.theta, exponent);
  const auto ramp = ((at::arange(rope.channels / 2, wide(options)) - rope.ramp_begin) /
                     (rope.ramp_end - rope.ramp_begin))
                        .clamp(0, 1);
  const auto fast_share = one_minus(ramp);
  return (period * rope.factor).reciprocal() * one_minus(fast_share) +
         period.reciprocal() * fast_share;
}

at::Tensor long_rope(const Rope& rope, int64_t length, const at::TensorOptions& options) {
  const auto& factors = length > rope.original_positions ? rope.long_factors : rope.short_factors;
  const auto exponent =
      at::arange(0, rope.channels, 2, wide(options)) / static_cast<double>(rope.channels);
  return (at::tensor(factors, wide(options)) * at::pow(rope.theta, exponent)).reciprocal();
}

// The base grows with the document; formed in fp32.
at::Tensor dynamic(const Rope& rope, int64_t length, const at::TensorOptions& options) {
  if (length <= rope.original_positions) {
    return ops::rope_frequencies(rope.channels, rope.theta, options);
  }
  const auto channels = static_cast<double>(rope.channels);
  const auto stretch = at::full({}, length, wide(options)) * rope.factor /
                           static_cast<double>(rope.original_positions) -
                       (rope.factor - 1);
  const auto theta = at::pow(stretch, channels / (channels - 2)) * rope.theta;
  return at::pow(theta, at::arange(0, rope.channels, 2, wide(options)) / channels).reciprocal();
}

// Do documents of these lengths?
bool turn_alike(const Rope& rope, int64_t a, int64_t b) {
  const auto original = rope.original_positions;
  switch (rope.type) {
    case plan::RopeType::kDynamic:
      return std::max(a, original) == std::max(b, original);
    case plan::RopeType::kLongRope:
      return (a > original) == (b > original);
    default:
      return true;
  }
}

// By how many tokens does each document of a run turn? An answer's prompt counts, and a prompt
// turns as its answers do.
std::vector<int64_t> turning_lengths(const Rope& rope, const tensor::DocumentRun& run) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < run.ends.size(); ++i) {
    const auto before = run.prompt_of(i).length();
    lengths.push_back(before + run.span(i).length());
    if (before == 0) continue;
    auto& of_prompt = lengths[static_cast<size_t>(run.continues[i])];
    const bool is_first = run.continues[i - 1] < 0;
    SKEIN_CHECK(is_first || turn_alike(rope, of_prompt, lengths[i]),
                "answers of these lengths turn their prompt differently");
    of_prompt = lengths[i];
  }
  return lengths;
}

at::Tensor frequencies(const Rope& rope, int64_t length, const at::TensorOptions& options) {
  const auto plain = [&] { return ops::rope_frequencies(rope.channels, rope.theta, options); };
  switch (rope.type) {
    case plan::RopeType::kDefault:
      return plain();
    case plan::RopeType::kLinear:
      return plain() / rope.factor;
    case plan::RopeType::kDynamic:
      return dynamic(rope, length, options);
    case plan::RopeType::kYarn:
      return yarn(rope, options);
    case plan::RopeType::kLongRope:
      return long_rope(rope, length, options);
    case plan::RopeType::kLlama3:
      return llama3(rope, plain());
  }
  return plain();
}

}  // namespace

ops::RopeTable rotary_table(const Rope& rope, const at::Tensor& positions, int64_t length,
                            const at::TensorOptions& options) {
  return ops::rope_table(positions, frequencies(rope, length, options), rope.magnitude, options);
}

ops::RopeTable rotary_table(const Rope& rope, const at::Tensor& positions,
                            std::span<const int64_t> lengths, const at::TensorOptions& options) {
  if (lengths.empty()) return rotary_table(rope, positions, 0, options);
  const auto as_first = [&](int64_t length) { return turn_alike(rope, length, lengths[0]); };
  if (std::ranges::all_of(lengths, as_first)) {
    return rotary_table(rope, positions, lengths[0], options);
  }
  std::vector<at::Tensor> cos, sin;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto own = positions.dim() == 1 ? positions : positions[static_cast<int64_t>(row)];
    const auto table = rotary_table(rope, own, lengths[row], options);
    cos.push_back(table.cos);
    sin.push_back(table.sin);
  }
  return {at::stack(cos), at::stack(sin)};
}

ops::RopeTable rotary_table(const Rope& rope, const tensor::Batch& batch,
                            const at::TensorOptions& options) {
  if (!batch.run) {
    const auto length = batch.tokens.size(1);
    const auto positions = at::arange(length, wide(options));
    if (!batch.row_lengths.defined() || !rope.depends_on_length()) {
      return rotary_table(rope, positions, length, options);
    }
    // The host waits for a device; rows that are not full are few.
    const auto lengths = batch.row_lengths.cpu();
    return rotary_table(rope, positions,
                        std::span(lengths.const_data_ptr<int64_t>(), lengths.numel()), options);
  }
  const auto& run = *batch.run;
  if (!rope.depends_on_length()) return rotary_table(rope, run.positions, run.longest, options);
  const auto lengths = turning_lengths(rope, run);
  std::vector<at::Tensor> cos, sin;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto span = run.span(i);
    const auto positions = run.positions.narrow(0, span.begin, span.length());
    const auto table = rotary_table(rope, positions, lengths[i], options);
    cos.push_back(table.cos);
    sin.push_back(table.sin);
  }
  return {at::cat(cos), at::cat(sin)};
}

}  // namespace skein::model
