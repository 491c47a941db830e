// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The store of ranks that another launcher has started: c10d's TCPStore.
//
// It has no authentication: whoever reaches the port can read and write it, so the network must be
// trusted. skein's own launcher serves a better one. On one machine only the master's address is
// listened on.

#include <chrono>
#include <memory>
#include <string>

#include "skein/core/store.h"

namespace skein::comm {

struct ForeignStoreOptions {
  std::string host;
  int port = 0;                                // 0: a free one, where `serve`
  bool serve = false;                          // this rank is 0 and nobody else listens there
  bool one_machine = false;                    // where `serve`: nobody comes from outside
  std::string prefix;                          // keeps starts and other users of the store apart
  std::chrono::milliseconds timeout{600'000};  // to reach it for the first time
};

class ForeignStore : public Store {
 public:
  virtual int port() const = 0;
};

// Each call takes a connection of its own: a get that waits holds up no other thread. Throws
// UserError when the port is taken, CommError when the store cannot be reached in time. A server
// that is stopped (not dead) can block every call but get(): see launch/foreign/foreign_watch.h.
std::unique_ptr<ForeignStore> join_foreign_store(const ForeignStoreOptions& options);

}  // namespace skein::comm
