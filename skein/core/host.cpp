// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/host.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>
#include <iterator>

namespace skein {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string pid_namespace() {
  std::array<char, 64> name{};
  if (readlink("/proc/self/ns/pid", name.data(), name.size() - 1) < 0) return "";
  return name.data();
}

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // where it does not help, what fails later says so
}

std::optional<char> process_state(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(") ");  // the name before it may hold anything
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  return text[name_end + 2];
}

}  // namespace skein
