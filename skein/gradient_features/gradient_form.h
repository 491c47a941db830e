// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// In which form does a sample's gradient become a feature?
//
//   sgd    g
//   sign   the sign of g
//   adam   the step that Adam would make with it, without the learning rate. LESS's form:
//          (β1 m + (1-β1) g) / √(β2 v + (1-β2) g² + ε), the epsilon inside the root, no correction
//          of the beginning. Standard: m' / (1-β1ᵗ) / (√(v' / (1-β2ᵗ)) + ε), t counting this step.
//
// m and v are those of a checkpoint's optimizer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "skein/gradient_features/files/collection_facts.h"

namespace skein::gradient_features {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

// Of one parameter: (elements) each.
struct Moments {
  at::Tensor first, second;
};

class GradientForm {
 public:
  GradientForm(GradientType type, AdamForm form = AdamForm::kLess) : type_(type), form_(form) {}

  // For kAdam: of every parameter whose gradients will come, and the updates made so far.
  void set_moments(std::map<std::string, Moments> moments, int64_t num_updates);

  // Rows that are in memory while apply() runs, for each of those that it is given: 1 or 2.
  int64_t buffers() const { return type_ == GradientType::kAdam ? 2 : 1; }

  // `rows` (samples, elements) in place: elements of the parameter `name` from `first_element` on.
  // A row with a number that is not finite has one afterwards.
  void apply(const at::Tensor& rows, const std::string& name, int64_t first_element) const;

 private:
  GradientType type_;
  AdamForm form_;
  std::map<std::string, Moments> moments_;
  int64_t num_updates_ = 0;
};

}  // namespace skein::gradient_features
