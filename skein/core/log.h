// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do messages go? To stderr, and to a file once one is named.
//
// Data goes to stdout and never through here. Thread-safe. A rank's lines carry its number once
// set_log_rank() was called; only rank 0 writes kInfo to stderr, every rank writes warnings.

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

namespace skein {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);
void set_log_rank(int rank);
// Also appends every line, whatever its rank, to `path`. Throws IoError if it cannot be opened; a
// disk that is full later gives one warning, and so does a file that somebody removes.
void add_log_file(const std::filesystem::path& path);

// Control characters but line ends and tabs come out as \xNN: text may quote strangers' files.
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace skein
