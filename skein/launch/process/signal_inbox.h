// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Receives the signals that ask for a stop (core/stop_signals.h) through a descriptor that poll()
// watches. Those that were held before come first.
//
// Make it on the main thread before any other thread exists: threads inherit the mask, so that
// these signals come here alone. The old mask comes back at the end.

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>

#include "skein/core/file.h"

namespace skein::launch {

class SignalInbox {
 public:
  // `with_pauses`: SIGTSTP (Ctrl-Z) comes here too, unless it is ignored.
  explicit SignalInbox(bool with_pauses = false);
  SignalInbox(const SignalInbox&) = delete;
  ~SignalInbox();

  // Readable when a signal waits.
  int descriptor() const { return file_.descriptor(); }
  std::optional<int> take() const;
  // Runs `work` on this thread with SIGTSTP's default effect.
  void with_default_pause(const std::function<void()>& work) const;
  // What SIGTSTP does by default: stops this process until SIGCONT. Returns for how long; not at
  // all where nobody could send that (the shell is gone).
  static std::chrono::nanoseconds stop_process();

 private:
  sigset_t before_{};
  File file_;
};

}  // namespace skein::launch
