// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// By which of this machine's addresses can another one be reached?

#include <string>
#include <vector>

namespace skein::launch {

struct Interface {
  std::string address;  // of this machine: numeric, IPv4 or IPv6
  std::string name;     // "eth0"; empty if unknown
};

// The kernel's route to `host`: nothing is sent. Throws UserError when the name cannot be resolved
// within 15 s or no route leads there.
Interface route_to(const std::string& host);

// Whether `host` is this machine. Loopback names are; a name that cannot be resolved is not.
bool is_local(const std::string& host);

// All that are up, IPv4 first.
std::vector<Interface> list_interfaces();

// Numeric addresses of `host`, in the resolver's order. Throws as route_to() does.
std::vector<std::string> resolve(const std::string& host);

}  // namespace skein::launch
