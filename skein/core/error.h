// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The kinds of failure, and the exit code that each ends a program with.
//
// A user's mistake is a UserError: one message, no stack. The world's failures are CommError
// (a peer or the network) and IoError (disk or data). Ours are InternalError, thrown by
// SKEIN_CHECK. Expected absence is std::optional, never an exception.

#include <stdexcept>
#include <string>

namespace skein {

// Stored in scripts and job schedulers: never renumber. See docs/exit_codes.md.
enum class ExitCode : int {
  kDone = 0,
  kInternal = 1,
  kUser = 2,
  kComm = 3,
  kIo = 4,
  kStopped = 75,  // stopped by a signal after saving; start again to continue
};

struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct IoError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The disk, or this user's share of it, is full.
struct DiskFull : IoError {
  using IoError::IoError;
};
// No failure: somebody asked for a stop, and what was under way has been given up.
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Throws IoError "<what>: <strerror(errno)>" (or DiskFull); call it right after the failing system
// call.
[[noreturn]] void throw_errno(const std::string& what);

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace skein

// For programmer errors only: a condition that no input can break.
#define SKEIN_CHECK(condition, message)                                                 \
  do {                                                                                  \
    if (!(condition)) ::skein::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
