// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/verify/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "skein/core/error.h"

namespace skein::train {

Tolerance bit_equal(const std::string& why) { return {0, 0, why}; }

// Where a gradient is next to nothing, Adam makes a whole step of its sign: parameters drift apart
// further than losses do. In 16 bits a weight that rounds the other way is off by its last bit, and
// what is computed with it too.
Tolerance rounding_of(DType dtype, bool moments_8bit) {
  // A moment that rounds the other way is off by a hundredth, and the step that it makes.
  if (moments_8bit) return {2e-2, 5e-2, "moments in 8 bits round at 1e-2"};
  switch (dtype) {
    case DType::kF64:
      return {1e-10, 1e-10, "float64 rounds at 1e-16"};
    case DType::kF32:
      return {1e-5, 1e-4, "float32 rounds at 1e-7, Adam enlarges it"};
    case DType::kF16:
      return {1e-2, 2e-2, "float16 rounds at 1e-3, Adam enlarges it"};
    default:
      return {2e-2, 5e-2, "bfloat16 rounds at 1e-2, Adam enlarges it"};
  }
}

double relative_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return a == 0 ? std::numeric_limits<double>::infinity() : difference / std::abs(a);
}

double largest_difference(std::span<const double> a, std::span<const double> b) {
  SKEIN_CHECK(a.size() == b.size(), "runs of different lengths");
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, relative_difference(a[i], b[i]));
  return largest;
}

}  // namespace skein::train
