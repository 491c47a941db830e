// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/moments.h"

#include <cmath>

#include "skein/core/error.h"

namespace skein::algorithms {

double Moments::deviation() const { return std::sqrt(variance()); }

void Moments::add(double value) { add(Moments{.count = 1, .mean = value}); }

void Moments::add(const Moments& more) {
  if (more.count == 0) return;
  const double total = count + more.count;
  const double lead = more.mean - mean;
  squares += more.squares + lead * lead * (count * more.count / total);
  mean += lead * (more.count / total);
  count = total;
}

Moments moments_of(std::span<const double> values) {
  Moments moments;
  for (const double value : values) moments.add(value);
  return moments;
}

std::vector<Moments> completion_moments(std::span<const double> values,
                                        std::span<const int64_t> lengths,
                                        std::span<const double> weights) {
  SKEIN_CHECK(weights.empty() || weights.size() == lengths.size(), "a weight for each completion");
  std::vector<Moments> parts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto length = static_cast<size_t>(lengths[i]);
    SKEIN_CHECK(length <= values.size(), "a number for each token");
    const bool counts = weights.empty() || weights[i] != 0;
    parts.push_back(counts ? moments_of(values.first(length)) : Moments{});
    values = values.subspan(length);
  }
  SKEIN_CHECK(values.empty(), "no number beyond the last completion");
  return parts;
}

Moments joined(std::span<const Moments> parts) {
  Moments all;
  for (const auto& part : parts) all.add(part);
  return all;
}

void whiten(std::span<double> values, const Moments& moments, Shift shift) {
  const double scale = 1 / std::sqrt(moments.variance() + 1e-8);
  const double kept = shift == Shift::kKeepMean ? moments.mean : 0;
  for (double& value : values) value = (value - moments.mean) * scale + kept;
}

}  // namespace skein::algorithms
