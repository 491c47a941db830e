// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/log_writer.h"
#include "skein/core/terminal_stream.h"

namespace skein {
namespace {

struct LogFile {
  std::string path;
  int descriptor;  // open until the process ends
};

struct LogState {
  std::mutex mutex;
  LogLevel level = LogLevel::kInfo;
  int rank = -1;  // -1: not a rank (launcher, commands)
  std::vector<LogFile> files;
  bool told_full = false, told_removed = false;
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

// Names in a stranger's files may hold what a terminal obeys: titles, cleared screens. Control
// characters of ASCII and of Unicode (C2 80 to C2 9F) are shown as \xNN; our own line ends stay.
std::string without_controls(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      safe += fmt::format("\\x{:02x}", next);
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      safe += fmt::format("\\x{:02x}", byte);
    } else {
      safe += text[i];
    }
  }
  return safe;
}

void write_to_terminal(LogState& log, LogLevel level, std::string_view text) {
  const auto who = log.rank > 0 ? fmt::format("[rank {}] ", log.rank) : std::string();
  const auto line = fmt::format("{}{}{}\n", who, level_name(level), text);
  if (log.writer)
    log.writer(line);
  else
    terminal_error().write(line);  // whole lines: ranks interleave
}

// What is written to a file without a name is gone with this process.
void tell_removed(LogState& log, const LogFile& file) {
  struct stat info{};
  if (log.told_removed || log.rank > 0) return;
  if (::fstat(file.descriptor, &info) != 0 || info.st_nlink > 0) return;
  log.told_removed = true;
  write_to_terminal(
      log, LogLevel::kWarning,
      fmt::format("{} was removed; the run goes on, what it says is not kept there", file.path));
}

// A full disk is no reason to end a run. Rank 0 says it once: the others' files lie beside its own.
void write_to_file(LogState& log, const LogFile& file, std::string_view line) {
  while (!line.empty()) {
    const auto count = ::write(file.descriptor, line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    line.remove_prefix(static_cast<size_t>(count));
  }
  if (line.empty()) return tell_removed(log, file);
  if (std::exchange(log.told_full, true) || log.rank > 0) return;
  write_to_terminal(log, LogLevel::kWarning,
                    fmt::format("cannot write {}: {}; the run goes on, its log has gaps", file.path,
                                std::strerror(errno)));
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
  const int file = File::open_to_append(path).release();
  const std::lock_guard lock(state().mutex);
  state().files.push_back({path.string(), file});
}

void set_log_writer(LogWriter writer) {
  const std::lock_guard lock(state().mutex);
  state().writer = std::move(writer);
}

void log_line(LogLevel level, std::string_view said) {
  auto& log = state();
  const std::lock_guard lock(log.mutex);
  if (level < log.level) return;
  const auto text = without_controls(said);
  const bool to_terminal = log.rank <= 0 || level >= LogLevel::kWarning;
  if (to_terminal) write_to_terminal(log, level, text);
  if (log.files.empty()) return;
  const auto line = fmt::format("{} {}{}\n", timestamp(), level_name(level), text);
  for (const auto& file : log.files) write_to_file(log, file, line);
}

}  // namespace skein
