// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What did c10d say? Its messages carry a C++ backtrace and Gloo's source files, which tell a user
// nothing.

#include <c10/util/Exception.h>

#include <exception>
#include <regex>
#include <string>

namespace skein::comm {

// "[…/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:7" loses its first part.
inline std::string without_source_files(const std::string& text) {
  static const std::regex location(R"(\[(enforce fail at )?[^\[\]]*\.(cc|cpp|h):\d+\]:? *)");
  return std::regex_replace(text, location, "");
}

inline std::string reason_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return without_source_files(c10_error ? c10_error->what_without_backtrace() : error.what());
}

}  // namespace skein::comm
