// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/log.h"

#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/log_writer.h"

namespace skein {
namespace {

struct LogState {
  std::mutex mutex;
  LogLevel level = LogLevel::kInfo;
  int rank = -1;  // -1: not a rank (launcher, commands)
  std::vector<std::FILE*> files;
  LogWriter writer;  // empty: stderr
};

LogState& state() {
  static auto* instance = new LogState;  // leaked: threads may log while statics are destroyed
  return *instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

std::string timestamp() {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     now.tv_nsec / 1'000'000);
}

}  // namespace

void set_log_level(LogLevel level) {
  const std::lock_guard lock(state().mutex);
  state().level = level;
}

void set_log_rank(int rank) {
  const std::lock_guard lock(state().mutex);
  state().rank = rank;
}

void add_log_file(const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) throw_errno(fmt::format("cannot open log file {}", path.string()));
  const std::lock_guard lock(state().mutex);
  state().files.push_back(file);
}

void set_log_writer(LogWriter writer) {
  const std::lock_guard lock(state().mutex);
  state().writer = std::move(writer);
}

void log_line(LogLevel level, std::string_view text) {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  if (level < log.level) return;
  const bool to_terminal = log.rank <= 0 || level >= LogLevel::kWarning;
  if (to_terminal) {
    const auto who = log.rank > 0 ? fmt::format("[rank {}] ", log.rank) : std::string();
    const auto line = fmt::format("{}{}{}\n", who, level_name(level), text);
    if (log.writer)
      log.writer(line);
    else
      std::fwrite(line.data(), 1, line.size(), stderr);  // whole lines: ranks interleave
  }
  for (std::FILE* file : log.files) {
    fmt::print(file, "{} {}{}\n", timestamp(), level_name(level), text);
    std::fflush(file);
  }
}

}  // namespace skein
