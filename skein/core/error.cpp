// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "skein/core/system_failure.h"

namespace skein {

void throw_errno(const std::string& what) {
  const int code = errno;
  const auto* hint = code == EMFILE ? " (raise the limit: ulimit -n)" : "";
  const auto message = fmt::format("{}: {}{}", what, std::strerror(code), hint);
  if (code == ENOSPC || code == EDQUOT) throw DiskFull(message);
  throw SystemFailure(message, code);
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: {} does not hold: {}", file, line, condition, message));
}

}  // namespace skein
