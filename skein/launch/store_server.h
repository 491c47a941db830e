// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Serves the control store: one thread, one address, only to those who know the secret.
//
// A peer that has not proved itself is read to a fixed bound, answered with one challenge and
// closed after `handshake_timeout`; when too many wait, the oldest of them makes room, so that
// strangers cannot keep a rank out. A get that must wait is parked here and costs nothing.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "skein/launch/secret.h"

namespace skein::launch {

struct StoreServerOptions {
  std::string host = "127.0.0.1";  // the interface to listen on, no other
  int port = 0;                    // 0: a free one
  uint32_t size = 1;               // ranks of the run: higher numbers are refused
  uint64_t generation = 0;
  std::chrono::milliseconds handshake_timeout{2000};
  size_t max_strangers = 64;
};

class StoreServer {
 public:
  // Listens when it returns. Throws UserError when the address or port cannot be had.
  StoreServer(const Secret& secret, const StoreServerOptions& options);
  ~StoreServer();

  int port() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace skein::launch
