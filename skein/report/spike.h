// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Has the loss jumped? A z-score against the last records.

#include <cstddef>
#include <deque>
#include <optional>

namespace skein::report {

class SpikeDetector {
 public:
  // A record counts as a spike when it lies `threshold` deviations above the mean of the last
  // ones; 0: never.
  explicit SpikeDetector(double threshold) : threshold_(threshold) {}

  // The z-score of a spike. Spikes do not enter the statistics.
  std::optional<double> add(double loss);

 private:
  double threshold_;
  std::deque<double> last_;
};

}  // namespace skein::report
