// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/guard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/terminal_stream.h"
#include "skein/launch/watch/failure_report.h"

namespace skein::cli {
namespace {

constexpr std::chrono::seconds kLastWords{1};  // for a terminal that is slow to take them

struct Failure {
  ExitCode code;
  std::string message;
  LogLevel level = LogLevel::kError;
};

Failure describe(const std::exception_ptr& failure) try {
  std::rethrow_exception(failure);
} catch (const MemoryShortage& error) {
  return {ExitCode::kUser, error.what(), LogLevel::kInfo};
} catch (const UserError& error) {
  return {ExitCode::kUser, error.what()};
} catch (const CommError& error) {
  return {ExitCode::kComm, error.what(), LogLevel::kWarning};  // a symptom: the launcher knows more
} catch (const IoError& error) {
  return {ExitCode::kIo, error.what()};
} catch (const Stopped& error) {
  return {ExitCode::kStopped, error.what(), LogLevel::kInfo};
} catch (const std::filesystem::filesystem_error& error) {
  return {ExitCode::kIo, error.what()};
} catch (const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again) {
    return {ExitCode::kInternal, fmt::format("internal: {}", error.what())};
  }
  return {ExitCode::kIo,
          "cannot start a thread: the limit on processes and threads is reached; raise it (ulimit "
          "-u, or a container's pids.max)"};
} catch (const std::exception& error) {
  return {ExitCode::kInternal, fmt::format("internal: {}", error.what())};
} catch (...) {
  return {ExitCode::kInternal, "internal: an exception of unknown type"};
}

bool may_go_away(int descriptor) {
  struct stat info{};
  if (::fstat(descriptor, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || ::isatty(descriptor) == 1;
}

void require_output() {
  const bool is_lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if ((!is_lost && !terminal_out().has_failed()) || may_go_away(STDOUT_FILENO)) return;
  throw IoError("what was asked for could not be written to stdout: is the disk full?");
}

bool ask(const std::function<bool()>& may_speak) try {
  return !may_speak || may_speak();
} catch (const std::exception&) {
  return true;  // who cannot ask, speaks
}

}  // namespace

void open_missing_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    // The lowest free number is taken: this one.
    if (fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int nothing = open("/dev/null", O_RDWR);
  }
}

int with_output(const std::function<int()>& body) {
  try {
    const int code = body();
    if (code == static_cast<int>(ExitCode::kDone)) require_output();
    return code;
  } catch (const std::system_error&) {  // of fmt::print()
    require_output();
    throw;
  }
}

void say_last_words() {
  for (auto* terminal : {&terminal_out(), &terminal_error()}) terminal->flush(kLastWords);
}

void end_at_once(int code) {
  std::fflush(nullptr);
  say_last_words();
  ::_exit(code);
}

int run_guarded(const std::function<int()>& body, const GuardHooks& hooks) try {
  return body();
} catch (...) {
  const auto failure = describe(std::current_exception());
  if (failure.code != ExitCode::kStopped) {
    // Whoever started this process shows it in the report.
    board::report_failure(failure.message);
    launch::write_error_file(failure.message);
  }
  if (ask(hooks.may_speak)) log_line(failure.level, failure.message);
  if (hooks.on_failure) hooks.on_failure(failure.code, failure.message);
  return static_cast<int>(failure.code);
}

}  // namespace skein::cli
