// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/spike.h"

#include <algorithm>
#include <cmath>

namespace skein::report {
namespace {

constexpr size_t kWindow = 64;  // records
constexpr size_t kNeeded = 10;  // before anything is called a spike
constexpr double kFloor =
    0.02;  // of the mean: a loss that hardly moves has no deviation to speak of

}  // namespace

std::optional<double> SpikeDetector::add(double loss) {
  if (threshold_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  if (last_.size() >= kNeeded) {
    double mean = 0, square = 0;
    for (const double value : last_) mean += value / static_cast<double>(last_.size());
    for (const double value : last_) square += (value - mean) * (value - mean);
    const double deviation = std::sqrt(square / static_cast<double>(last_.size()));
    const double score = (loss - mean) / std::max(deviation, kFloor * std::abs(mean));
    if (score > threshold_) return score;
  }
  last_.push_back(loss);
  if (last_.size() > kWindow) last_.pop_front();
  return std::nullopt;
}

}  // namespace skein::report
