// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/stop_agreement.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::train {
namespace {

constexpr int kSteps = 6;

// The step at whose end all of three ranks stop when rank 1 is asked to before it asks in
// `request`.
int last_step(int request) {
  std::vector<int> stopped(3, 0);
  comm::run_ranks(3, [&](comm::Group& group) {
    StopAgreement stop(group);
    int step = 0;
    bool stopping = false;
    while (step < kSteps && !stopping) {
      ++step;
      stop.ask(group.rank() == 1 && step >= request);
      stopping = stop.answer();
    }
    stop.finish();
    group.barrier();  // the ranks' calls still match
    stopped[group.rank()] = stopping ? step : 0;
  });
  EXPECT_EQ(stopped[0], stopped[1]);
  EXPECT_EQ(stopped[0], stopped[2]);
  return stopped[0];
}

TEST(StopAgreement, IsReadAStepLater) {
  EXPECT_EQ(last_step(1), 2);
  EXPECT_EQ(last_step(3), 4);
  EXPECT_EQ(last_step(kSteps - 1), kSteps);
}

TEST(StopAgreement, ComesTooLateInTheLastStep) {
  EXPECT_EQ(last_step(kSteps), 0);
  EXPECT_EQ(last_step(kSteps + 1), 0);
}

}  // namespace
}  // namespace skein::train
