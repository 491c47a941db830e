// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "skein/core/error.h"

namespace skein {
namespace {

// In processes of their own: signals are theirs alone.
TEST(StopSignals, WaitWhileTheyAreHeld) {
  const auto holds = [](int signal) {
    for (const int one : {SIGHUP, SIGINT}) std::signal(one, SIG_DFL);  // tests may run under nohup
    hold_stop_signals();
    const bool before = stop_waits();
    raise(signal);
    int code = before ? 1 : 2;
    try {
      end_if_stop_waits();
    } catch (const Stopped&) {
      code += 5;
    }
    _exit(stop_waits() ? code : 3);  // seen, not taken
  };
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
    EXPECT_EXIT(holds(signal), testing::ExitedWithCode(7), "");
  }
}

// nohup ignores SIGHUP, and a shell's script SIGINT for what it starts with `&`.
TEST(StopSignals, OnesThatWereInheritedAsIgnoredAreNone) {
  const auto ignores = [](int signal) {
    std::signal(signal, SIG_IGN);
    hold_stop_signals();
    raise(signal);
    _exit(stop_waits() ? 1 : 7);
  };
  for (const int signal : {SIGHUP, SIGINT}) {
    EXPECT_EXIT(ignores(signal), testing::ExitedWithCode(7), "");
  }
}

TEST(StopSignals, HaveTheirEffectOnceReleased) {
  EXPECT_EXIT(
      {
        hold_stop_signals();
        raise(SIGTERM);
        release_stop_signals();
        _exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(_exit(stop_waits() ? 1 : 7), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace skein
