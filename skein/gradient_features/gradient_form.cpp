// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/gradient_form.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "skein/core/error.h"

namespace skein::gradient_features {

void GradientForm::set_moments(std::map<std::string, Moments> moments, int64_t num_updates) {
  moments_ = std::move(moments);
  num_updates_ = num_updates;
}

void GradientForm::apply(const at::Tensor& rows, const std::string& name,
                         int64_t first_element) const {
  if (type_ == GradientType::kSgd) return;
  if (type_ == GradientType::kSign) {
    rows.sign_();
    return;
  }
  const auto found = moments_.find(name);
  SKEIN_CHECK(found != moments_.end(), fmt::format("no moments of {}", name));
  const auto part = [&](const at::Tensor& all) {
    return all.narrow(0, first_element, rows.size(1)).to(rows.scalar_type());
  };
  auto second = (rows * rows).mul_(1 - kBeta2).add_(part(found->second.second), kBeta2);
  rows.mul_(1 - kBeta1).add_(part(found->second.first), kBeta1);
  if (form_ == AdamForm::kLess) {
    rows.div_(second.add_(kEpsilon).sqrt_());
    return;
  }
  const auto step = static_cast<double>(num_updates_ + 1);
  second.div_(1 - std::pow(kBeta2, step)).sqrt_().add_(kEpsilon);
  rows.div_(1 - std::pow(kBeta1, step)).div_(second);
}

}  // namespace skein::gradient_features
