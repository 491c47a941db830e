// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Receives the signals that ask for a stop (SIGTERM, SIGHUP, SIGUSR1, SIGINT) through a descriptor
// that poll() watches.
//
// Make it on the main thread before any other thread exists: threads inherit the mask, so that
// these signals come here alone. The old mask comes back at the end.

#include <csignal>
#include <functional>
#include <optional>

#include "skein/core/file.h"

namespace skein::launch {

class SignalInbox {
 public:
  SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  ~SignalInbox();

  // Readable when a signal waits.
  int descriptor() const { return file_.descriptor(); }
  std::optional<int> take() const;
  // Runs `work` on this thread with the signals' usual effect: most of them end the process.
  void with_default_signals(const std::function<void()>& work) const;

 private:
  sigset_t wanted_{};
  sigset_t before_{};
  File file_;
};

}  // namespace skein::launch
