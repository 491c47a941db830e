// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "skein/core/error.h"

namespace skein::launch {

SignalInbox::SignalInbox() {
  sigemptyset(&wanted_);
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGINT}) sigaddset(&wanted_, signal);
  pthread_sigmask(SIG_BLOCK, &wanted_, &before_);
  file_ = File(signalfd(-1, &wanted_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!file_) throw_errno("cannot receive signals");
}

SignalInbox::~SignalInbox() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> SignalInbox::take() const {
  signalfd_siginfo info{};
  if (read(file_.descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalInbox::with_default_signals(const std::function<void()>& work) const {
  struct Reblock {
    const sigset_t& wanted;
    ~Reblock() { pthread_sigmask(SIG_BLOCK, &wanted, nullptr); }
  } const reblock{wanted_};
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  work();
}

}  // namespace skein::launch
