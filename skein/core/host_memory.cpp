// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/host_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "skein/core/amounts.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

// The number after `key` at the start of a line; without a key, that of the first line. Nothing
// where the file or the number is missing ("max").
std::optional<uint64_t> number_in(const fs::path& path, const std::string& key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    try {
      return std::stoull(line.substr(key.size()));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

struct Limit {
  uint64_t bytes = 0;
  uint64_t left = 0;
};

// Of one cgroup's folder.
std::optional<Limit> limit_in(const fs::path& folder, bool unified) {
  const auto bytes = number_in(folder / (unified ? "memory.max" : "memory.limit_in_bytes"));
  // Version 1 writes "none" as a number near 2^63.
  if (!bytes || *bytes >= std::numeric_limits<int64_t>::max() / 2) return std::nullopt;
  const auto used =
      number_in(folder / (unified ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const auto dropped =
      number_in(folder / "memory.stat", unified ? "inactive_file " : "total_inactive_file ");
  const auto taken = used - std::min(used, dropped.value_or(0));
  return Limit{*bytes, *bytes - std::min(*bytes, taken)};
}

// Of this process's cgroups and those above them. Lines of the file are "0::/path" (version 2) and
// "4:memory:/path" (version 1).
std::vector<Limit> limits(const KernelFolders& folders) {
  std::vector<Limit> found;
  std::ifstream membership(folders.proc / "self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto kinds = line.substr(first + 1, second - first - 1);
    const bool unified = kinds.empty();
    if (!unified && kinds.find("memory") == std::string::npos) continue;
    const auto root = unified ? folders.cgroups : folders.cgroups / "memory";
    for (auto group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      if (const auto limit = limit_in(root / group, unified)) found.push_back(*limit);
      if (group.empty()) break;
    }
  }
  return found;
}

}  // namespace

std::optional<uint64_t> memory_limit(const KernelFolders& folders) {
  std::optional<uint64_t> smallest;
  for (const auto& limit : limits(folders)) {
    smallest = std::min(smallest.value_or(limit.bytes), limit.bytes);
  }
  return smallest;
}

uint64_t available_memory(const KernelFolders& folders) {
  uint64_t left = number_in(folders.proc / "meminfo", "MemAvailable:").value_or(0) * 1024;
  for (const auto& limit : limits(folders)) left = std::min(left, limit.left);
  return left;
}

uint64_t total_memory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

std::string memlock_advice(uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= bytes) return "";
  const uint64_t kibibytes = (bytes + 1023) / 1024;
  return fmt::format(
      "a process may lock {} here, {} bytes are needed: type `ulimit -l {}` before the start "
      "(or `ulimit -l unlimited`), in a systemd unit LimitMEMLOCK={}, for docker --ulimit "
      "memlock={}",
      shown_bytes(limit.rlim_cur), bytes, kibibytes, bytes, bytes);
}

}  // namespace skein
