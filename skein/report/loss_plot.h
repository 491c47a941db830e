// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// training_loss.svg: training loss, raw and smoothed, and evaluation loss over steps.

#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"

namespace skein::report {

struct CurvePoint {
  double step = 0;
  double loss = 0;
};

struct LossCurves {
  std::vector<CurvePoint> train;
  std::vector<CurvePoint> eval;
};

// The points of a trainer_log.jsonl; lines that are no record of a loss are passed over.
LossCurves read_loss_curves(const fs::path& trainer_log);

// Exponential, the stronger the more points there are (LLaMA-Factory's weight). A loss that is not
// finite stays out of the average and comes out as it went in.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points);

// A whole SVG document of a few dozen kilobytes at most, however many points there are. Curves are
// interrupted where a loss is not finite. Light or dark as the viewer prefers.
std::string loss_plot_svg(const LossCurves& curves, std::string_view title);

}  // namespace skein::report
