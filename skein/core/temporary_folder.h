// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: a fresh folder, which the test removes.

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace skein {

inline std::filesystem::path make_temporary_folder(std::string_view name) {
  auto pattern =
      (std::filesystem::temp_directory_path() / fmt::format("skein-{}-XXXXXX", name)).string();
  return ::mkdtemp(pattern.data());
}

}  // namespace skein
