// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// How is the norm of a sharded gradient taken?
//
// Every rank squares its own shard in fp64; the ranks' sums are gathered and added in rank order.
// The cut is the same at every stage, so the norm is bit-equal over stages at one world size.

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "skein/parallel/sharded.h"

namespace skein::parallel {

Sharded::GradientNorm Sharded::gradient_norm(const NormOptions& norm_options) {
  const auto [max_norm, scale] = norm_options;
  const auto options = at::TensorOptions().dtype(at::kDouble).device(options_.device);
  auto unit_squares = at::zeros({static_cast<int64_t>(table_.units.size())}, options);
  for (const auto* segment : trainable_segments()) {
    segment->add_square_sum(unit_squares.select(0, segment->layout().unit));
  }
  auto squares = at::zeros({group_.size()}, options);
  group_.all_gather(squares, unit_squares.sum().view({1})).wait();
  const auto norm = squares.sum().sqrt() * scale;
  const auto clip =
      max_norm > 0 ? (max_norm / (norm + 1e-6)).clamp_max(1.0) : at::ones({}, options);
  return {norm, {clip * scale, norm.isfinite().logical_not().to(at::kFloat)}, unit_squares};
}

std::vector<std::string> Sharded::non_finite_units(const GradientNorm& norm) {
  const auto finite = norm.unit_squares.isfinite().cpu();
  std::vector<int64_t> found(table_.units.size(), 0);
  for (size_t unit = 0; unit < found.size(); ++unit) {
    found[unit] = finite[static_cast<int64_t>(unit)].item<bool>() ? 0 : 1;
  }
  found = group_.sum(found);
  std::vector<std::string> names;
  for (size_t unit = 0; unit < found.size(); ++unit) {
    if (found[unit] != 0) names.push_back(table_.units[unit].name);
  }
  return names;
}

}  // namespace skein::parallel
