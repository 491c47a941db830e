// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/host.h"

namespace skein::launch {
namespace {

constexpr std::chrono::seconds kResolveLimit(15);

std::string to_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  if (bytes == nullptr) return "";
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                     : text.data();
}

struct Answer {
  int code = 0;
  std::vector<std::string> addresses;
};

Answer ask_resolver(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  Answer answer{.code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list), .addresses = {}};
  if (answer.code != 0) return answer;
  for (const auto* entry = list; entry != nullptr; entry = entry->ai_next) {
    auto text = to_text(entry->ai_addr);
    if (!text.empty()) answer.addresses.push_back(std::move(text));
  }
  ::freeaddrinfo(list);
  return answer;
}

bool is_numeric(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> ignored{};
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

// getaddrinfo knows no deadline: a thread asks, and is left behind if no answer comes. It takes no
// signal, which the launcher waits for.
std::optional<Answer> ask_with_deadline(const std::string& host) {
  auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([promise, host] { promise->set_value(ask_resolver(host)); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (future.wait_for(kResolveLimit) != std::future_status::ready) {
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return future.get();
}

// Our end of a datagram socket that is pointed at `address`.
std::optional<std::string> source_towards(const std::string& address) {
  sockaddr_storage target{};
  socklen_t length = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&target);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&target);
  constexpr uint16_t kDiscard = 9;
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(kDiscard);
    length = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(kDiscard);
    length = sizeof *v6;
  }
  const File socket(::socket(target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return std::nullopt;
  if (::connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&target), length) != 0) return {};
  sockaddr_storage own{};
  length = sizeof own;
  if (::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return {};
  return to_text(reinterpret_cast<sockaddr*>(&own));
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno("cannot list the network interfaces");
  std::vector<Interface> interfaces;
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    auto text = to_text(entry->ifa_addr);
    if (!text.empty()) interfaces.push_back({std::move(text), entry->ifa_name});
  }
  ::freeifaddrs(list);
  std::stable_partition(interfaces.begin(), interfaces.end(), [](const Interface& interface) {
    return interface.address.find(':') == std::string::npos;
  });
  return interfaces;
}

std::vector<std::string> resolve(const std::string& host) {
  if (is_numeric(host)) return {host};
  const auto answer = ask_with_deadline(host);
  if (!answer) {
    throw UserError(fmt::format(
        "the name server does not answer within {} s for '{}': give the machine's address instead",
        kResolveLimit.count(), host));
  }
  if (answer->code != 0 || answer->addresses.empty()) {
    throw UserError(fmt::format("host '{}' is not known here: {}", host,
                                answer->code == 0 ? "no address" : ::gai_strerror(answer->code)));
  }
  return answer->addresses;
}

Interface route_to(const std::string& host) {
  for (const auto& address : resolve(host)) {
    const auto source = source_towards(address);
    if (!source) continue;
    const auto interfaces = list_interfaces();
    const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&](const auto& one) { return one.address == *source; });
    return {*source, found == interfaces.end() ? "" : found->name};
  }
  throw UserError(
      fmt::format("no route from this machine to '{}': {}", host, std::strerror(ENETUNREACH)));
}

bool is_local(const std::string& host) {
  if (host == "localhost" || host == host_name()) return true;
  std::vector<std::string> addresses;
  try {
    addresses = resolve(host);
  } catch (const UserError&) {
    return false;
  }
  const auto interfaces = list_interfaces();
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return address.starts_with("127.") ||
           std::any_of(interfaces.begin(), interfaces.end(),
                       [&](const Interface& interface) { return interface.address == address; });
  });
}

}  // namespace skein::launch
