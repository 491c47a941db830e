// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A hostfile, and behind a zero byte the choice among its hosts. Names reach ssh's command line.
#include "skein/launch/placement/hostfile.h"

#include <algorithm>
#include <set>

#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@";

void check(const std::vector<launch::Host>& hosts) {
  require(!hosts.empty(), "there is a host");
  std::set<std::string> names;
  for (const auto& host : hosts) {
    require(!host.name.empty() && host.name[0] != '-', "a name is no option");
    require(host.name.find("@-") == std::string::npos, "nor is it one behind user@");
    require(host.name.find_first_not_of(kPlain) == std::string::npos, "a name is plain");
    require(std::count(host.name.begin(), host.name.end(), '@') <= 1, "a name has one user");
    require(names.insert(host.name).second, "a host is named once");
    const std::set<int> slots(host.slots.begin(), host.slots.end());
    require(!slots.empty() && slots.size() == host.slots.size(), "a slot is named once");
    require(*slots.begin() >= 0 && *slots.rbegin() < 4096, "a slot is in range");
  }
}

}  // namespace

void hostfile(std::string_view bytes) try {
  const auto zero = bytes.find('\0');
  const auto hosts = launch::parse_hostfile(bytes.substr(0, zero), "hosts");
  check(hosts);
  if (zero == std::string_view::npos) return;
  const std::string words(bytes.substr(zero + 1));
  try {
    check(launch::choose_hosts(hosts, {.include = words, .exclude = {}}));
  } catch (const UserError&) {
  }
  check(launch::choose_hosts(hosts, {.include = {}, .exclude = words, .most = 1}));
} catch (const UserError&) {
}

}  // namespace skein::fuzz
