// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "skein/core/error.h"

namespace skein::control {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns an empty list and the reason when the name is unknown.
AddressList resolve(const std::string& host, int port, std::string& problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) problem = gai_strerror(code);
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

// Small messages leave at once, and a machine that went away without a word is noticed.
void tune(int descriptor) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(descriptor, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
}

std::string explain_listen_error(const std::string& host, int port, int error) {
  if (error == EADDRNOTAVAIL) {
    return fmt::format(
        "{} is no address of this machine: node 0 must run where MASTER_ADDR points "
        "(--master-addr)",
        host);
  }
  if (error == EADDRINUSE) {
    return fmt::format(
        "port {} of {} is in use by another program (`ss -ltnp 'sport = :{}'` shows "
        "which): choose another with --master-port or MASTER_PORT, on all nodes",
        port, host, port);
  }
  return fmt::format("cannot listen on {} port {}: {}", host, port, std::strerror(error));
}

void wait_for(const File& socket, short events, Deadline deadline, const char* what) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{socket.descriptor(), events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw_errno("cannot wait for the control store");
    if (ready == 0) throw CommError(fmt::format("the control store did not {} in time", what));
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

File listen_on(const std::string& host, int port) {
  std::string problem;
  const auto addresses = resolve(host, port, problem);
  if (!addresses) throw UserError(fmt::format("MASTER_ADDR {} is unknown: {}", host, problem));
  int error = 0;
  for (const auto* a = addresses.get(); a != nullptr; a = a->ai_next) {
    File socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    // A port that was named may still hold closed connections of the run before.
    if (port != 0) setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket && bind(socket.descriptor(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(socket.descriptor(), SOMAXCONN) == 0) {
      return socket;
    }
    error = errno;
  }
  throw UserError(explain_listen_error(host, port, error));
}

int local_port(const File& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw_errno("cannot read a socket's own address");
  }
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

File accept_one(const File& listener) {
  File socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) tune(socket.descriptor());
  return socket;
}

File connect_to(const std::string& host, int port, Deadline deadline) {
  std::string problem;
  const auto addresses = resolve(host, port, problem);
  for (const auto* a = addresses.get(); a != nullptr; a = a->ai_next) {
    File socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) throw CommError(fmt::format("cannot create a socket: {}", std::strerror(errno)));
    int error = connect(socket.descriptor(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      wait_for(socket, POLLOUT, deadline, "accept the connection");
      socklen_t size = sizeof error;
      getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      tune(socket.descriptor());
      return socket;
    }
    problem = std::strerror(error);
  }
  throw CommError(
      fmt::format("cannot reach the control store at {} port {}: {}", host, port, problem));
}

void send_all(const File& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto sent = send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (would_block()) {
      wait_for(socket, POLLOUT, deadline, "take a message");
    } else {
      throw CommError(fmt::format("lost the control store: {}", std::strerror(errno)));
    }
  }
}

std::string receive_some(const File& socket, size_t most, Deadline deadline) {
  std::string bytes(most, '\0');
  while (true) {
    const auto got = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got >= 0) {
      bytes.resize(static_cast<size_t>(got));
      return bytes;
    }
    if (!would_block())
      throw CommError(fmt::format("lost the control store: {}", std::strerror(errno)));
    wait_for(socket, POLLIN, deadline, "answer");
  }
}

std::string receive_exactly(const File& socket, size_t size, Deadline deadline) {
  std::string bytes;
  while (bytes.size() < size) {
    const auto more = receive_some(socket, size - bytes.size(), deadline);
    if (more.empty()) throw CommError("the control store closed the connection");
    bytes += more;
  }
  return bytes;
}

}  // namespace skein::control
