// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests alone: a port that nobody has, and a stranger who does nothing but connect.

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "skein/control/socket.h"
#include "skein/core/file.h"

namespace skein::control {

// For a server that another one is to follow: a port that was asked for by number can be used
// again.
inline int free_port() { return local_port(listen_on("127.0.0.1", 0)); }

struct Flood {
  uint64_t tried = 0;
  uint64_t connected = 0;  // at once; others found the queue of the port full
};

// Connects and resets, again and again, until `ended`; `address` is in the machine's byte order.
inline Flood flood(uint32_t address, int port, const std::atomic<bool>& ended) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(port));
  target.sin_addr.s_addr = htonl(address);
  const auto* to = reinterpret_cast<const sockaddr*>(&target);
  const linger reset{.l_onoff = 1, .l_linger = 0};  // so that no port is kept for a closed one
  Flood count;
  while (!ended) {
    const File socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    ++count.tried;
    if (connect(socket.descriptor(), to, sizeof target) == 0 ||
        connect(socket.descriptor(), to, sizeof target) == 0 || errno == EISCONN) {
      ++count.connected;
    }
  }
  return count;
}

}  // namespace skein::control
