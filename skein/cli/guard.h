// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where exceptions end: one message on stderr, and the exit code of docs/exit_codes.md.

#include <functional>

namespace skein::cli {

// Returns what `body` returns, or the code of what it throws. `may_speak` is asked before a message
// is printed.
int run_guarded(
    const std::function<int()>& body, const std::function<bool()>& may_speak = [] { return true; });

}  // namespace skein::cli
