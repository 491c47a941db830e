// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/stop_signals.h"

#include "skein/core/error.h"

namespace skein {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  // Asked for each time: a held signal waits even where it is ignored, so that it must not be held.
  for (const int signal : {SIGHUP, SIGINT}) {
    struct sigaction now{};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

void hold_stop_signals() {
  const auto signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void release_stop_signals() {
  const auto signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

bool stop_waits() {
  sigset_t waiting;
  const auto signals = stop_signals();
  if (sigpending(&waiting) != 0 || sigandset(&waiting, &waiting, &signals) != 0) return false;
  return sigisemptyset(&waiting) == 0;
}

void end_if_stop_waits() {
  if (stop_waits()) throw Stopped("stopped before the run began; the same command starts it");
}

}  // namespace skein
