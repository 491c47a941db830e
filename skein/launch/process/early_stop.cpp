// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/early_stop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/stop_signals.h"
#include "skein/launch/process/slow_disk.h"

namespace skein::launch {
namespace {

constexpr int kPatienceMs = 1000;
constexpr std::chrono::seconds kLongestPutAway{1};

File listen_for_stops() {
  const auto signals = stop_signals();
  return File(signalfd(-1, &signals, SFD_CLOEXEC));
}

void wait_for(pollfd* entries, nfds_t count, int milliseconds) {
  while (poll(entries, count, milliseconds) < 0 && errno == EINTR) continue;
}

}  // namespace

EarlyStop::EarlyStop(std::function<void()> put_away)
    : put_away_(std::move(put_away)), signals_(listen_for_stops()), over_(eventfd(0, EFD_CLOEXEC)) {
  if (!signals_ || !over_) throw_errno("cannot receive signals");
  thread_ = std::thread([this] { watch(); });
}

EarlyStop::~EarlyStop() {
  eventfd_write(over_.descriptor(), 1);
  thread_.join();
}

// The signal is seen but not taken: it still waits for whoever looks for it or comes next.
void EarlyStop::watch() const {
  pollfd entries[] = {{over_.descriptor(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
  wait_for(entries, 2, -1);
  if (entries[0].revents == 0) wait_for(entries, 1, kPatienceMs);
  if (entries[0].revents != 0) return;
  // Bounded too: the disk that this process waits for may be the one that has it.
  try_for(kLongestPutAway, [this] {
    put_away_();
    return true;
  });
  log_info("stopped before there was anything to save; the same command starts again");
  ::_exit(static_cast<int>(ExitCode::kStopped));
}

}  // namespace skein::launch
