// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/host.h"

#include <cstdlib>

namespace skein::report {

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace skein::report
