// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Named numbers of a step: how are they added up over micro-batches, steps and ranks?
//
// A mean is over all that was counted, however it was split. Nothing waits for a GPU before the
// numbers are asked for.

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace skein::algorithms {

struct Metric {
  enum class Kind { kMean, kLeast, kMost };

  std::string name;
  Kind kind = Kind::kMean;
};

// One for each of some metrics, (M) float64: sums, least or largest numbers, and of how many. What
// was counted 0 times is not looked at. Undefined where there are no metrics.
struct MetricValues {
  at::Tensor values{}, counts{};
};

using NamedNumbers = std::vector<std::pair<std::string, double>>;

class MetricSums {
 public:
  // The metrics must outlive it.
  explicit MetricSums(std::span<const Metric> metrics = {}) : metrics_(metrics) {}

  void add(const MetricValues& more);
  // Those of another, where `counts` (a boolean scalar) says so.
  void add(const MetricSums& other, const at::Tensor& counts);

  // This rank's numbers, in its place among those of `size` ranks: what is added up over ranks.
  std::vector<double> share(int rank, int size) const;
  // From that sum. A metric that nobody counted is left out.
  NamedNumbers numbers(std::span<const double> sum, int size) const;

 private:
  std::span<const Metric> metrics_;
  MetricValues sums_;  // undefined: nothing yet
};

}  // namespace skein::algorithms
