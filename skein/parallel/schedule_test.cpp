// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <gtest/gtest.h>

#include <string>

#include "skein/parallel/gather_schedule.h"
#include "skein/parallel/reduce_schedule.h"

namespace skein::parallel {
namespace {

using Pass = GatherSchedule::Pass;

struct GatherTrace {
  std::string text;
  GatherSchedule schedule{{0, 1, 2},
                          {[this](int u) { text += "s" + std::to_string(u) + " "; },
                           [this](int u) { text += "w" + std::to_string(u) + " "; },
                           [this](int u) { text += "d" + std::to_string(u) + " "; }}};
  void use(int unit, Pass pass) {
    schedule.acquire(unit, pass);
    text += "U ";
    schedule.release(unit);
  }
};

TEST(GatherSchedule, PrefetchesOneAhead) {
  GatherTrace trace;
  trace.schedule.begin();
  for (const int unit : {0, 1, 2}) trace.use(unit, Pass::kForward);
  for (const int unit : {2, 1, 0}) trace.use(unit, Pass::kBackward);
  trace.schedule.end();
  EXPECT_EQ(trace.text,
            "s0 w0 s1 U d0 w1 s2 U d1 w2 U d2 "
            "s2 w2 s1 U d2 w1 s0 U d1 w0 U d0 ");
}

// Rank-dependent control flow must not change the order in which collectives are issued.
TEST(GatherSchedule, UnusedUnitsAreGatheredInTheirTurn) {
  GatherTrace trace;
  trace.schedule.begin();
  trace.use(2, Pass::kForward);
  trace.use(2, Pass::kBackward);
  trace.schedule.end();
  std::string started;
  for (size_t i = 0; i < trace.text.size(); ++i) {
    if (trace.text[i] == 's') started += trace.text[i + 1];
  }
  EXPECT_EQ(started, "012210");
}

TEST(ReduceSchedule, KeepsListOrderWhateverTheOrderOfArrival) {
  std::string text;
  ReduceSchedule schedule({2, 1, 0, 9}, {[&](int u) { text += "s" + std::to_string(u) + " "; },
                                         [&](int u) { text += "f" + std::to_string(u) + " "; }});
  schedule.begin();
  schedule.done(1);
  EXPECT_EQ(text, "");
  schedule.done(2);
  EXPECT_EQ(text, "s2 f2 s1 ");
  schedule.end();  // 0 and 9 were never reached
  EXPECT_EQ(text, "s2 f2 s1 f1 s0 f0 s9 f9 ");
}

}  // namespace
}  // namespace skein::parallel
