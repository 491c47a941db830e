// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "skein/core/error.h"
#include "skein/core/stop_signals.h"

namespace skein::launch {
namespace {

sigset_t pause_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTSTP);
  return signals;
}

}  // namespace

SignalInbox::SignalInbox(bool with_pauses) {
  auto wanted = stop_signals();
  struct sigaction now{};
  sigaction(SIGTSTP, nullptr, &now);
  if (with_pauses && now.sa_handler != SIG_IGN) sigaddset(&wanted, SIGTSTP);
  pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  file_ = File(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!file_) throw_errno("cannot receive signals");
}

SignalInbox::~SignalInbox() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void SignalInbox::with_default_pause(const std::function<void()>& work) const {
  const auto pause = pause_signal();
  struct Reblock {
    const sigset_t& signals;
    ~Reblock() { pthread_sigmask(SIG_BLOCK, &signals, nullptr); }
  } const reblock{pause};
  pthread_sigmask(SIG_UNBLOCK, &pause, nullptr);
  work();
}

std::chrono::nanoseconds SignalInbox::stop_process() {
  using Unpaused = std::chrono::steady_clock;
  const auto pause = pause_signal();
  const auto begin = Unpaused::now();
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &pause, nullptr);  // here it stops
  pthread_sigmask(SIG_BLOCK, &pause, nullptr);
  return Unpaused::now() - begin;
}

std::optional<int> SignalInbox::take() const {
  signalfd_siginfo info{};
  if (read(file_.descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace skein::launch
