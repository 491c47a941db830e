// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/host.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

namespace skein::train {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace skein::train
