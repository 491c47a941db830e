// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How far may two runs of the same steps be apart, and how far are they?

#include <span>
#include <string>

#include "skein/core/dtype.h"

namespace skein::train {

struct Tolerance {
  double numbers = 0;     // losses and gradient norms, relative
  double parameters = 0;  // relative
  std::string why;

  bool is_exact() const { return numbers == 0 && parameters == 0; }
};

// Of runs that add the same terms up in the same order: none.
Tolerance bit_equal(const std::string& why);
// Of runs that add them up in another one: weights of this type, moments perhaps in 8 bits.
Tolerance rounding_of(DType dtype, bool moments_8bit = false);

// |a - b| / |a|; infinite where one of the two is not finite and the other is another number.
double relative_difference(double a, double b);
// The largest of them. Both have the same size.
double largest_difference(std::span<const double> a, std::span<const double> b);

}  // namespace skein::train
