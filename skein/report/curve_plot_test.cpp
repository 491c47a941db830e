// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/curve_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace skein::report {
namespace {

Curves falling(int count) {
  Curves curves;
  for (int i = 1; i <= count; ++i) {
    const double wave = 0.12 * std::sin(i * 12.9898) + 0.08 * std::sin(i * 78.233);
    curves.train.push_back({static_cast<double>(i), 1.2 + 3 * std::exp(-i * 5.0 / count) + wave});
    if (i % (count / 10) == 0)
      curves.eval.push_back({static_cast<double>(i), 1.3 + 3 * std::exp(-i * 5.0 / count)});
  }
  return curves;
}

// Every tag is closed in order, and no attribute or text holds a stray bracket.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
    const auto end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return false;
    const auto tag = xml.substr(at + 1, end - at - 1);
    const auto name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

TEST(CurvePlot, WellFormedAndSmallWhateverTheInput) {
  for (const int count : {10, 300, 200000}) {
    const auto svg = curve_plot_svg(falling(count), "a <b> & c");
    EXPECT_TRUE(is_well_formed(svg));
    EXPECT_LT(svg.size(), 60000U);
    EXPECT_NE(svg.find("a &lt;b> &amp; c"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
  }
}

// As a reward that has nothing left to gain: spans that no tick fits into, and one beyond all
// numbers.
TEST(CurvePlot, EndsWhateverTheSpan) {
  for (const auto& [low, high] : {std::pair{0.1875, 0.18750000000000003},
                                  {0.0, 5e-324},
                                  {-1e308, 1e308},
                                  {1e300, 1.1e300},
                                  {1e15, 1e15 + 1}}) {
    const auto svg = curve_plot_svg({"reward", {{1, low}, {2, high}, {3, low}}, {}}, "run");
    EXPECT_TRUE(is_well_formed(svg)) << low << " " << high;
    EXPECT_LT(svg.size(), 60000U) << low << " " << high;
  }
}

TEST(CurvePlot, NothingOnePointAndNoFiniteLoss) {
  for (const auto& curves :
       {Curves{}, Curves{"loss", {{1, 2.5}}, {}}, Curves{"loss", {{1, NAN}}, {}},
        Curves{"loss", {{1, 3}, {2, INFINITY}, {3, 2}}, {{3, NAN}}}}) {
    const auto svg = curve_plot_svg(curves, "run");
    EXPECT_TRUE(is_well_formed(svg)) << svg;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
}

TEST(CurvePlot, CurveIsInterruptedWhereALossIsNotFinite) {
  const auto svg = curve_plot_svg({"loss", {{1, 3}, {2, 2}, {3, NAN}, {4, 2}, {5, 1}}, {}}, "run");
  const auto path = svg.substr(svg.find("curve raw\" d="), 200);
  EXPECT_EQ(std::count(path.begin(), path.begin() + static_cast<int64_t>(path.find("/>")), 'M'), 2);
}

TEST(CurvePlot, SmoothingIsLlamaFactorys) {
  // Three points: weight 1.8 * (sigmoid(0.15) - 0.5) = 0.067374…
  const double weight = 1.8 * (1 / (1 + std::exp(-0.15)) - 0.5);
  EXPECT_NEAR(weight, 0.0673737, 1e-7);
  const auto smoothed = smooth({{1, 4}, {2, 2}, {3, 3}});
  const double second = 4 * weight + 2 * (1 - weight);
  EXPECT_DOUBLE_EQ(smoothed[0].value, 4);
  EXPECT_DOUBLE_EQ(smoothed[1].value, second);
  EXPECT_DOUBLE_EQ(smoothed[2].value, second * weight + 3 * (1 - weight));
}

TEST(CurvePlot, ReadsTrainerLog) {
  const auto path = fs::path(testing::TempDir()) / "curve_plot_trainer_log.jsonl";
  write_file_atomically(path,
                        "{\"step\": 1, \"loss\": 3.5}\n{\"step\": 2, \"loss\": null}\n"
                        "{\"step\": 2, \"eval_loss\": 3.25}\nhalf a li");
  const auto curves = read_curves(path, "loss");
  fs::remove(path);
  ASSERT_EQ(curves.train.size(), 2U);
  EXPECT_EQ(curves.train[0].value, 3.5);
  EXPECT_TRUE(std::isnan(curves.train[1].value));
  ASSERT_EQ(curves.eval.size(), 1U);
  EXPECT_EQ(curves.eval[0].value, 3.25);
}

TEST(CurvePlot, TheBestRewardIsTheHighest) {
  const Curves curves{"reward", {{1, 0.2}, {2, 0.4}}, {{1, 0.5}, {2, 0.25}}};
  const auto svg = curve_plot_svg(curves, "run");
  EXPECT_NE(svg.find("eval_reward 0.25 (best 0.5 at step 1)"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">reward</text>"), std::string::npos);
}

}  // namespace
}  // namespace skein::report
