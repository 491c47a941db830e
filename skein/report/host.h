// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the reporters ask of the machine: its environment, its files.

#include <filesystem>
#include <string>

namespace skein::report {

// The variable's value, or `otherwise` when it is unset or empty.
std::string environment(const char* name, const std::string& otherwise = "");
// Whatever cannot be looked at is not there.
bool file_exists(const std::filesystem::path& path);

}  // namespace skein::report
