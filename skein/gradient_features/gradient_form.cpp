// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/gradient_form.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "skein/core/error.h"

namespace skein::gradient_features {

void GradientForm::set_moments(std::map<std::string, Moments> moments, int64_t num_updates) {
  moments_ = std::move(moments);
  num_updates_ = num_updates;
}

namespace {

// (samples): 0, or NaN for a sample with a number that is not finite.
at::Tensor nan_if_not_finite(const at::Tensor& rows) {
  return at::linalg_vector_norm(rows, std::numeric_limits<double>::infinity(), 1) * 0;
}

}  // namespace

void GradientForm::apply(const at::Tensor& rows, const std::string& name,
                         int64_t first_element) const {
  if (type_ == GradientType::kSgd) return;
  if (type_ == GradientType::kSign) {
    const auto mark = nan_if_not_finite(rows);
    rows.sign_();  // of NaN it is 0
    rows.select(1, 0).add_(mark);
    return;
  }
  const auto found = moments_.find(name);
  SKEIN_CHECK(found != moments_.end(), fmt::format("no moments of {}", name));
  const auto part = [&](const at::Tensor& all) {
    return all.narrow(0, first_element, rows.size(1)).to(rows.scalar_type());
  };
  auto second = (rows * rows).mul_(1 - kBeta2).add_(part(found->second.second), kBeta2);
  const auto mark = nan_if_not_finite(second);  // a square that overflows would make a step of 0
  rows.mul_(1 - kBeta1).add_(part(found->second.first), kBeta1);
  rows.select(1, 0).add_(mark);
  if (form_ == AdamForm::kLess) {
    rows.div_(second.add_(kEpsilon).sqrt_());
    return;
  }
  const auto step = static_cast<double>(num_updates_ + 1);
  second.div_(1 - std::pow(kBeta2, step)).sqrt_().add_(kEpsilon);
  rows.div_(1 - std::pow(kBeta1, step)).div_(second);
}

}  // namespace skein::gradient_features
