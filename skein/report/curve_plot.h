// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// training_loss.svg and training_reward.svg: a number of the training, raw and smoothed, and of
// evaluations, over steps.

#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"

namespace skein::report {

struct CurvePoint {
  double step = 0;
  double value = 0;
};

struct Curves {
  std::string name = "loss";  // of the number: that of evaluations has eval_ before it
  std::vector<CurvePoint> train;
  std::vector<CurvePoint> eval;
};

// The points of a trainer_log.jsonl; lines that are no record of it are passed over.
Curves read_curves(const fs::path& trainer_log, const std::string& name);

// Exponential, the stronger the more points there are (LLaMA-Factory's weight). A value that is not
// finite stays out of the average and comes out as it went in.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points);

// A whole SVG document of a few dozen kilobytes at most, however many points there are. Curves are
// interrupted where a value is not finite. Light or dark as the viewer prefers.
std::string curve_plot_svg(const Curves& curves, std::string_view title);

}  // namespace skein::report
