// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Lets the owner of the terminal (a live progress line) put log lines on it in its own way.

#include <functional>
#include <string_view>

namespace skein {

// Gets every line meant for stderr, its newline included, one at a time; must not log itself.
using LogWriter = std::function<void(std::string_view line)>;

// Empty: stderr again. After the return the old writer is not called any more.
void set_log_writer(LogWriter writer);

}  // namespace skein
