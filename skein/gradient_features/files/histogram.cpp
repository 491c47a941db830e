// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "skein/report/svg.h"

namespace skein::gradient_features {
namespace {

using report::svg::escaped, report::svg::line, report::svg::text;

constexpr double kWidth = 860, kHeight = 360;
constexpr double kLeft = 72, kRight = 28, kTop = 64, kBottom = 48;
constexpr size_t kBars = 60;

constexpr std::string_view kStyle = R"(
  text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px }
  text { fill: #57606a }
  .title { font-size: 17px; font-weight: 600; fill: #1f2328 }
  .paper { fill: #ffffff }
  .axis { stroke: #8c959f; stroke-width: 1 }
  .bar { fill: #9ec5f5 } .kept { fill: #d9730d }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc } .paper { fill: #0d1117 }
    .axis { stroke: #6e7681 } .bar { fill: #2a4d7c }
  }
)";

struct Bars {
  double low = 0, high = 1;
  std::array<int64_t, kBars> all{}, kept{};
};

Bars count(std::span<const float> scores, float cut) {
  Bars bars{.low = INFINITY, .high = -INFINITY};
  for (const float score : scores) {
    if (!std::isfinite(score)) continue;
    bars.low = std::min<double>(bars.low, score);
    bars.high = std::max<double>(bars.high, score);
  }
  if (!(bars.low < bars.high)) {  // nothing, or all the same
    const double middle = bars.low > bars.high ? 0 : bars.low;
    bars.low = middle - 0.5;
    bars.high = middle + 0.5;
  }
  for (const float score : scores) {
    if (!std::isfinite(score)) continue;
    const double share = (score - bars.low) / (bars.high - bars.low);
    const auto bar = std::min(kBars - 1, static_cast<size_t>(share * kBars));
    ++bars.all[bar];
    bars.kept[bar] += score >= cut ? 1 : 0;
  }
  return bars;
}

std::string bar(std::string_view css, size_t place, double height) {
  const double width = (kWidth - kLeft - kRight) / kBars;
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", css,
      kLeft + width * static_cast<double>(place), kHeight - kBottom - height, width - 1, height);
}

std::string axes(const Bars& bars, int64_t most) {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  auto out = line("axis", kLeft, bottom, right, bottom);
  for (int i = 0; i <= 4; ++i) {
    const double share = i / 4.0;
    out += text(kLeft + share * (right - kLeft), bottom + 20, "middle",
                fmt::format("{:.3g}", bars.low + share * (bars.high - bars.low)));
  }
  out += text(kLeft - 10, kTop + 5, "end", fmt::format("{}", most));
  return out + text(kLeft - 10, bottom, "end", "0") +
         text((kLeft + right) / 2, kHeight - 8, "middle", "score");
}

}  // namespace

std::string histogram_svg(std::span<const float> scores, float cut, std::string_view title) {
  const auto bars = count(scores, cut);
  const int64_t most = std::max<int64_t>(1, std::ranges::max(bars.all));
  auto out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\" rx=\"8\"/>\n"
      "<text class=\"title\" x=\"{4}\" y=\"36\">{2}</text>\n",
      kWidth, kHeight, escaped(title), kStyle, kLeft);
  const auto height = [&](int64_t samples) {
    return (kHeight - kBottom - kTop) * static_cast<double>(samples) / static_cast<double>(most);
  };
  for (size_t i = 0; i < kBars; ++i) {
    if (bars.all[i] > 0) out += bar("bar", i, height(bars.all[i]));
    if (bars.kept[i] > 0) out += bar("kept", i, height(bars.kept[i]));
  }
  return out + axes(bars, most) + "</svg>\n";
}

}  // namespace skein::gradient_features
