// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where exceptions end: one message on stderr, and the exit code of docs/exit_codes.md.
//
// The message also goes to this rank's board and to the file that TORCHELASTIC_ERROR_FILE names, if
// there are such.

#include <functional>
#include <string>

#include "skein/core/error.h"

namespace skein::cli {

// First in main(): a program that was started with a closed stdin, stdout or stderr would give that
// number to the next file it opens, and log lines would end up in a checkpoint.
void open_missing_streams();

// Memory is full, and the launcher may start again with less: it tells what becomes of the run.
struct MemoryShortage : UserError {
  using UserError::UserError;
};

struct GuardHooks {
  // Asked before a message is printed; empty: yes.
  std::function<bool()> may_speak;
  // Told when all else is done; empty: nobody.
  std::function<void(ExitCode code, const std::string& message)> on_failure;
};

// Returns what `body` returns. Throws IoError when what it has written to stdout is lost: a script
// would take an empty file for the answer. Who reads a pipe or a terminal may go away.
int with_output(const std::function<int()>& body);

// At a program's end: gives a slow terminal a moment to take what it has not taken yet.
void say_last_words();

// Ends the process without destructors: threads of a library, or of a lost peer, could hold them
// up.
[[noreturn]] void end_at_once(int code);

// Returns what `body` returns, or the code of what it throws.
int run_guarded(const std::function<int()>& body, const GuardHooks& hooks = {});

}  // namespace skein::cli
