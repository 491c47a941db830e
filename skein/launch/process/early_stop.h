// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// While it lives, a signal that asks for a stop (core/stop_signals.h) ends this process with 75,
// whatever it waits for, a disk that does not answer too: for a launcher that has started no rank
// yet, and a rank of another launcher that has nothing to save yet.
//
// Work that looks for such signals itself has a second to end in order. The signals must be held.

#include <functional>
#include <thread>

#include "skein/core/file.h"

namespace skein::launch {

class EarlyStop {
 public:
  // `put_away` is called first, on another thread, and has a second.
  explicit EarlyStop(std::function<void()> put_away);
  ~EarlyStop();  // signals wait again
  EarlyStop(const EarlyStop&) = delete;

 private:
  void watch() const;

  const std::function<void()> put_away_;
  File signals_, over_;
  std::thread thread_;
};

}  // namespace skein::launch
