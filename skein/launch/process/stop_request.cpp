// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/stop_request.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

#include "skein/core/stop_signals.h"

namespace skein::launch {
namespace {

std::atomic<bool> requested = false;
std::atomic<int> interrupts = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler takes no lock");

void on_signal(int signal) {
  if (signal == SIGINT && interrupts.fetch_add(1) > 0) _exit(128 + SIGINT);
  requested = true;
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes of the step go on: it is to be finished
  const auto signals = stop_signals();
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
    if (sigismember(&signals, signal) == 1) sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

bool stop_requested() { return requested; }

}  // namespace skein::launch
