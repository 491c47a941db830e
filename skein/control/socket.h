// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// TCP sockets with deadlines. All are non-blocking and closed on exec.

#include <string>
#include <string_view>

#include "skein/core/clock.h"
#include "skein/core/file.h"

namespace skein::control {

using Deadline = Time;

// Listens on that address alone; port 0 takes a free one. Throws UserError when it cannot.
File listen_on(const std::string& host, int port);
int local_port(const File& socket);

// The next waiting connection, or nothing.
File accept_one(const File& listener);

// These throw CommError, which says what was waited for, on failure and at the deadline.
File connect_to(const std::string& host, int port, Deadline deadline);
void send_all(const File& socket, std::string_view bytes, Deadline deadline);
std::string receive_some(const File& socket, size_t most, Deadline deadline);  // empty: closed
std::string receive_exactly(const File& socket, size_t size, Deadline deadline);

}  // namespace skein::control
