// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The signals that ask for a stop: SIGTERM, SIGUSR1, SIGINT (Ctrl-C) and SIGHUP (the terminal is
// gone). The last two are none where they were inherited as ignored (nohup, a script's `&`).
//
// A program that has something to put away holds them from main()'s first line on. Held signals
// wait until somebody takes them (launch/process), and the kernel keeps them for a process 1 too,
// which it otherwise spares every signal that nobody handles.

#include <csignal>

namespace skein {

sigset_t stop_signals();

// On this thread and those that it will make; programs that are started by exec inherit it.
void hold_stop_signals();
// They have their usual effect again, also those that wait.
void release_stop_signals();

// Does one wait that nobody has taken? False where they are not held. Any thread may ask.
bool stop_waits();
// Long work calls it between its parts: throws Stopped when one waits.
void end_if_stop_waits();

}  // namespace skein
