// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/curve_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/report/record_log.h"
#include "skein/report/svg.h"

namespace skein::report {
namespace {

using svg::escaped, svg::line, svg::text;

constexpr double kWidth = 860, kHeight = 480;
constexpr double kLeft = 72, kRight = 28, kTop = 84, kBottom = 56;
constexpr size_t kMostPoints = 800;  // about one per pixel column

constexpr std::string_view kStyle = R"(
  text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px }
  text { fill: #57606a }
  .title { font-size: 17px; font-weight: 600; fill: #1f2328 }
  .paper { fill: #ffffff }
  .grid { stroke: #eaeef2; stroke-width: 1 }
  .axis { stroke: #8c959f; stroke-width: 1 }
  .curve { fill: none; stroke-linejoin: round; stroke-linecap: round }
  .raw { stroke: #9ec5f5; stroke-width: 1.2 }
  .smooth { stroke: #1f6feb; stroke-width: 2.4 }
  .eval { stroke: #d9730d; stroke-width: 2 }
  .dot { fill: #d9730d }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc } .paper { fill: #0d1117 }
    .grid { stroke: #21262d } .axis { stroke: #6e7681 }
    .raw { stroke: #2a4d7c } .smooth { stroke: #58a6ff }
  }
)";

struct Scale {
  double low = 0, high = 1;    // of the data
  double first = 0, last = 1;  // on the paper

  double operator()(double value) const {
    return first + (value - low) / (high - low) * (last - first);
  }
};

// 1, 2 or 5 times a power of ten, so that about `count` steps cover the span.
double tick_distance(double span, int count) {
  const double raw = span / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// Few, whatever the numbers are.
std::vector<double> ticks(const Scale& scale, double distance) {
  constexpr int kMost = 50;
  std::vector<double> values;
  const double first = std::ceil(scale.low / distance) * distance;
  for (int i = 0; i < kMost; ++i) {
    const double value = first + i * distance;
    if (!(value <= scale.high + distance * 1e-6)) break;
    values.push_back(value);
  }
  return values;
}

std::string tick_label(double value, double distance) {
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)));
  if (std::abs(value) >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (std::abs(value) >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:.{}f}", value == 0 ? 0.0 : value, decimals);
}

void widen(Scale& scale, const std::vector<CurvePoint>& points, double CurvePoint::* member) {
  for (const auto& point : points) {
    if (!std::isfinite(point.value)) continue;
    scale.low = std::min(scale.low, point.*member);
    scale.high = std::max(scale.high, point.*member);
  }
}

Scale scale_of(const Curves& curves, double CurvePoint::* member, double first, double last) {
  Scale scale{INFINITY, -INFINITY, first, last};
  widen(scale, curves.train, member);
  widen(scale, curves.eval, member);
  if (scale.low > scale.high) return {0, 1, first, last};  // nothing to show
  // Values that differ by their last bits are one line, not a mountain range.
  const double size = std::max(std::abs(scale.low), std::abs(scale.high));
  if (scale.high - scale.low <= std::max(1e-9 * size, 1e-30)) {
    scale.high = scale.low + std::max(1e-3, std::abs(scale.low) * 0.1);
  }
  return scale;
}

// A little air above and below, so that no curve runs along the frame.
Scale padded(Scale scale) {
  const double air = 0.05 * (scale.high - scale.low);
  scale.high += air;
  scale.low = scale.low >= 0 ? std::max(0.0, scale.low - air) : scale.low - air;
  return scale;
}

// The lowest and the highest of each run of points: what the eye would see of them all.
std::vector<CurvePoint> thin_out(const std::vector<CurvePoint>& points) {
  if (points.size() <= kMostPoints) return points;
  const size_t run = (2 * points.size() + kMostPoints - 1) / kMostPoints;
  std::vector<CurvePoint> out;
  for (size_t begin = 0; begin < points.size(); begin += run) {
    const auto first = points.begin() + static_cast<int64_t>(begin);
    const auto last = points.begin() + static_cast<int64_t>(std::min(begin + run, points.size()));
    auto [low, high] = std::minmax_element(
        first, last, [](const auto& a, const auto& b) { return a.value < b.value; });
    if (low > high) std::swap(low, high);
    out.push_back(*low);
    if (low != high) out.push_back(*high);
  }
  return out;
}

std::string curve(const std::vector<CurvePoint>& points, std::string_view css, const Scale& x,
                  const Scale& y) {
  std::string path;
  bool pen_down = false;
  for (const auto& point : thin_out(points)) {
    if (std::isfinite(point.value)) {
      path += fmt::format("{}{:.1f},{:.1f}", pen_down ? "L" : "M", x(point.step), y(point.value));
    }
    pen_down = std::isfinite(point.value);
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"curve {}\" d=\"{}\"/>\n", css, path);
}

std::string dots(const std::vector<CurvePoint>& points, const Scale& x, const Scale& y) {
  if (points.size() > 60) return "";  // they would hide the curve
  std::string out;
  for (const auto& point : points) {
    if (!std::isfinite(point.value)) continue;
    out += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"/>\n",
                       x(point.step), y(point.value));
  }
  return out;
}

std::string axes(const Scale& x, const Scale& y, std::string_view name) {
  std::string out;
  const double dy = tick_distance(y.high - y.low, 6);
  for (const double v : ticks(y, dy)) {
    out += line("grid", kLeft, y(v), kWidth - kRight, y(v));
    out += text(kLeft - 10, y(v) + 4.5, "end", tick_label(v, dy));
  }
  const double dx = std::max(1.0, tick_distance(x.high - x.low, 10));  // steps are whole
  for (const double v : ticks(x, dx)) {
    out += line("axis", x(v), kHeight - kBottom, x(v), kHeight - kBottom + 5);
    out += text(x(v), kHeight - kBottom + 21, "middle", tick_label(v, dx));
  }
  out += line("axis", kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom);
  out += text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", "step");
  return out + fmt::format(
                   "<text transform=\"translate(20 {:.1f}) rotate(-90)\" "
                   "text-anchor=\"middle\">{}</text>\n",
                   (kTop + kHeight - kBottom) / 2, escaped(name));
}

struct LegendEntry {
  std::string_view css;
  std::string label;
};

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string out;
  double x = kLeft;
  for (const auto& [css, label] : entries) {
    out += line(fmt::format("curve {}", css), x, 56, x + 24, 56);
    out += text(x + 32, 60.5, "start", label);
    x += 60 + 7.2 * static_cast<double>(label.size());
  }
  return out;
}

std::string last_value(const std::vector<CurvePoint>& points) {
  const auto& last = points.back();
  return std::isfinite(last.value) ? fmt::format("{:.4g}", last.value) : "not finite";
}

// The best reward is the highest, the best loss the lowest.
std::string eval_label(const Curves& curves) {
  const auto& points = curves.eval;
  const double sign = curves.name == "reward" ? -1 : 1;
  const auto rank = [&](const CurvePoint& p) {
    return std::isfinite(p.value) ? sign * p.value : INFINITY;
  };
  const auto best =
      *std::min_element(points.begin(), points.end(),
                        [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  auto label = fmt::format("eval_{} {}", curves.name, last_value(points));
  if (std::isfinite(best.value))
    label += fmt::format(" (best {:.4g} at step {:g})", best.value, best.step);
  return label;
}

}  // namespace

Curves read_curves(const fs::path& trainer_log, const std::string& name) {
  Curves curves{.name = name};
  each_record(trainer_log, [&](int64_t step, const nlohmann::ordered_json& record) {
    const auto add = [&](const std::string& key, std::vector<CurvePoint>& points) {
      if (!record.contains(key)) return;
      const auto& value = record[key];  // null: JSON has no NaN
      points.push_back({static_cast<double>(step), value.is_number() ? value.get<double>() : NAN});
    };
    add(name, curves.train);
    add("eval_" + name, curves.eval);
  });
  return curves;
}

std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points) {
  const auto count = static_cast<double>(points.size());
  const double weight = 1.8 * (1 / (1 + std::exp(-0.05 * count)) - 0.5);
  std::vector<CurvePoint> out = points;
  double last = NAN;
  for (auto& point : out) {
    if (!std::isfinite(point.value)) continue;
    if (std::isnan(last)) last = point.value;
    last = point.value = weight * last + (1 - weight) * point.value;
  }
  return out;
}

std::string curve_plot_svg(const Curves& curves, std::string_view title) {
  auto x = scale_of(curves, &CurvePoint::step, kLeft, kWidth - kRight);
  if (x.low < 0.1 * x.high) x.low = 0;  // a run from its start
  const auto y = padded(scale_of(curves, &CurvePoint::value, kHeight - kBottom, kTop));
  const auto smoothed = smooth(curves.train);

  std::vector<LegendEntry> entries;
  if (!curves.train.empty()) {
    entries.push_back({"raw", curves.name + " " + last_value(curves.train)});
    entries.push_back({"smooth", "smoothed " + last_value(smoothed)});
  }
  if (!curves.eval.empty()) entries.push_back({"eval", eval_label(curves)});

  auto out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\" rx=\"8\"/>\n"
      "<text class=\"title\" x=\"{4}\" y=\"32\">{2}</text>\n",
      kWidth, kHeight, escaped(title), kStyle, kLeft);
  out += legend(entries) + axes(x, y, curves.name);
  out += curve(curves.train, "raw", x, y) + curve(smoothed, "smooth", x, y);
  out += curve(curves.eval, "eval", x, y) + dots(curves.eval, x, y);
  return out + "</svg>\n";
}

}  // namespace skein::report
