// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/terminal.h"

#include <gtest/gtest.h>

#include "skein/core/log.h"

namespace skein::report {
namespace {

Progress at_forty_percent() {
  return {.step = 12,
          .total = 30,
          .elapsed_seconds = 5,
          .steps_per_second = 2.4,
          .fields = {{"loss", "3.21"}, {"lr", "1e-4"}}};
}

TEST(RenderProgress, TqdmShape) {
  EXPECT_EQ(render_progress(at_forty_percent(), 72),
            " 40%|██████         | 12/30 [00:05<00:07,  2.40it/s, loss=3.21, lr=1e-4]");
}

TEST(RenderProgress, DropsFieldsThenTheBarThenTheTail) {
  EXPECT_EQ(render_progress(at_forty_percent(), 50),
            " 40%|█████▏       | 12/30 [00:05<00:07,  2.40it/s]");
  EXPECT_EQ(render_progress(at_forty_percent(), 20), " 40%|| 12/30 [00:05<");
  for (int width = 1; width < 200; ++width)
    EXPECT_LE(display_width(render_progress(at_forty_percent(), width)), width);
}

TEST(RenderProgress, ChineseFieldsKeepTheWidth) {
  auto progress = at_forty_percent();
  progress.fields = {{"损失", "三点二"}};
  EXPECT_EQ(display_width(render_progress(progress, 70)), 70);
}

TEST(RenderProgress, SlowUnknownAndDone) {
  auto progress = at_forty_percent();
  progress.fields.clear();
  progress.steps_per_second = 0.25;
  EXPECT_NE(render_progress(progress, 80).find("[00:05<01:12,  4.00s/it]"), std::string::npos);
  progress.steps_per_second.reset();
  EXPECT_NE(render_progress(progress, 80).find("[00:05<?, ?it/s]"), std::string::npos);
  progress.step = 30;
  EXPECT_NE(render_progress(progress, 80).find("100%|██"), std::string::npos);
  progress.total = progress.step = 0;
  EXPECT_NE(render_progress(progress, 80).find("100%|"), std::string::npos);
}

TEST(PlainProgress, OneLine) {
  EXPECT_EQ(plain_progress(at_forty_percent()),
            "step 12/30 (40%)  loss 3.21  lr 1e-4  [00:05<00:07, 2.40it/s]");
}

TEST(DisplayWidth, ChineseIsDoubleCombiningIsNothing) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("批次"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("█▏"), 2);
  EXPECT_EQ(display_width("\xE6"), 1);  // a cut character
}

TEST(ClockText, HoursOnlyWhenThereAreAny) {
  EXPECT_EQ(clock_text(5.9), "00:05");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

// A screen of one row: what a terminal would show of what was written.
struct Screen {
  std::string written;
  double now = 0;

  Terminal::Device device() {
    return {[this](std::string_view text) { written += text; }, [] { return 61; },
            [this] { return now; }};
  }
  std::vector<std::string> rows() const {
    std::vector<std::string> rows(1);
    for (size_t i = 0; i < written.size(); ++i) {
      if (written[i] == '\n')
        rows.emplace_back();
      else if (written.compare(i, 4, "\r\x1b[K") == 0)
        rows.back().clear(), i += 3;
      else
        rows.back() += written[i];
    }
    return rows;
  }
};

TEST(Terminal, LogLinesScrollAboveTheLiveLine) {
  Screen screen;
  {
    Terminal terminal({.total_steps = 10, .live = true}, screen.device());
    screen.now = 1;
    terminal.update(1);
    log_warning("disk is slow");
    screen.now = 2;
    terminal.update(2);
    const auto rows = screen.rows();
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0], "warning: disk is slow");
    EXPECT_EQ(rows[1].find(" 20%|"), 0U);
    EXPECT_NE(rows[1].find("| 2/10 [00:02<00:08,  1.00it/s]"), std::string::npos) << rows[1];
    EXPECT_EQ(display_width(rows[1]), 60);
  }
  EXPECT_EQ(screen.rows().size(), 3U);  // the live line was ended
}

TEST(Terminal, RedrawsAtMostTenTimesASecond) {
  Screen screen;
  Terminal terminal({.total_steps = 1000, .live = true}, screen.device());
  for (int step = 1; step <= 100; ++step) {
    screen.now += 0.01;
    terminal.update(step);
  }
  size_t draws = 0;
  for (size_t at = 0; (at = screen.written.find('\r', at)) != std::string::npos; ++at) ++draws;
  EXPECT_GE(draws, 8U);
  EXPECT_LE(draws, 11U);
}

TEST(Terminal, RateIgnoresStepsOfAnEarlierStart) {
  Screen screen;
  Terminal terminal({.total_steps = 1000, .first_step = 500, .live = true}, screen.device());
  screen.now = 2;
  terminal.update(501);
  EXPECT_NE(screen.rows().back().find(" 2.00s/it"), std::string::npos);
}

TEST(Terminal, NotLiveWritesNothingItself) {
  Screen screen;
  {
    Terminal terminal({.total_steps = 10}, screen.device());
    terminal.update(1);
    testing::internal::CaptureStderr();
    terminal.record(2, {{"loss", "1.5"}});
    EXPECT_NE(testing::internal::GetCapturedStderr().find("step 2/10 (20%)  loss 1.5"),
              std::string::npos);
  }
  EXPECT_EQ(screen.written, "");
}

}  // namespace
}  // namespace skein::report
