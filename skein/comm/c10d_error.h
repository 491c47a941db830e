// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What did c10d say? c10's messages carry a C++ backtrace, which tells a user nothing.

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace skein::comm {

inline std::string reason_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

}  // namespace skein::comm
