// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <optional>

#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

using Kind = Metric::Kind;

// A number that was counted 0 times may be anything.
at::Tensor joined(Kind kind, const MetricValues& one, const MetricValues& other) {
  if (kind == Kind::kMean) {
    return at::where(one.counts > 0, one.values, 0) + at::where(other.counts > 0, other.values, 0);
  }
  const auto first = at::where(one.counts > 0, one.values, other.values);
  const auto second = at::where(other.counts > 0, other.values, first);
  return kind == Kind::kLeast ? at::minimum(first, second) : at::maximum(first, second);
}

double joined(Kind kind, double one, double other) {
  return kind == Kind::kLeast ? std::min(one, other) : std::max(one, other);
}

// A mean's two numbers are added up; of the others every rank keeps its own.
size_t places_of(const Metric& metric, int size) {
  return 2 * (metric.kind == Kind::kMean ? 1 : static_cast<size_t>(size));
}

}  // namespace

void MetricSums::add(const MetricValues& more) {
  if (metrics_.empty()) return;
  SKEIN_CHECK(more.values.numel() == std::ssize(metrics_), "a number for each metric");
  if (!sums_.values.defined()) {
    sums_ = more;
    return;
  }
  std::vector<at::Tensor> values;
  for (size_t begin = 0, end = 0; begin < metrics_.size(); begin = end) {
    const auto kind = metrics_[begin].kind;
    while (end < metrics_.size() && metrics_[end].kind == kind) ++end;
    const auto part = [&](const MetricValues& of) {
      const auto first = static_cast<int64_t>(begin), count = static_cast<int64_t>(end - begin);
      return MetricValues{of.values.narrow(0, first, count), of.counts.narrow(0, first, count)};
    };
    values.push_back(joined(kind, part(sums_), part(more)));
  }
  sums_ = {at::cat(values), sums_.counts + more.counts};
}

void MetricSums::add(const MetricSums& other, const at::Tensor& counts) {
  if (!other.sums_.values.defined()) return;
  add({other.sums_.values, at::where(counts, other.sums_.counts, 0)});
}

std::vector<double> MetricSums::share(int rank, int size) const {
  std::vector<double> share;
  const bool has_any = sums_.values.defined();
  const auto values = has_any ? sums_.values.cpu() : at::Tensor();
  const auto counts = has_any ? sums_.counts.cpu() : at::Tensor();
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const size_t first = share.size();
    share.resize(first + places_of(metrics_[i], size));
    const double count = has_any ? counts.data_ptr<double>()[i] : 0;
    if (count == 0) continue;
    const size_t own =
        first + (metrics_[i].kind == Kind::kMean ? 0 : 2 * static_cast<size_t>(rank));
    share[own] = values.data_ptr<double>()[i];
    share[own + 1] = count;
  }
  return share;
}

NamedNumbers MetricSums::numbers(std::span<const double> sum, int size) const {
  NamedNumbers numbers;
  for (const auto& metric : metrics_) {
    const auto own = sum.first(places_of(metric, size));
    sum = sum.subspan(own.size());
    std::optional<double> value;
    for (size_t at = 0; at < own.size(); at += 2) {
      if (own[at + 1] == 0) continue;
      const double one = metric.kind == Kind::kMean ? own[at] / own[at + 1] : own[at];
      value = value ? joined(metric.kind, *value, one) : one;
    }
    if (value) numbers.emplace_back(metric.name, *value);
  }
  return numbers;
}

}  // namespace skein::algorithms
