// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One process of ours: started, watched, signalled, reaped.
//
// A child dies with the launcher's main thread, leads a process group of its own (so that Ctrl-C
// reaches it once, through the launcher), reads nothing from the terminal and shares stdout and
// stderr unless it is given others. SIGCHLD must not be ignored: nobody would learn how it ended.

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "skein/core/file.h"

namespace skein::launch {

struct ChildCommand {
  std::vector<std::string> arguments;    // the program's path first; no shell, no PATH
  std::vector<std::string> environment;  // NAME=value, all of it
  std::vector<int> inherited;            // descriptors to hand over under their own numbers
  bool keeps_descriptors = true;         // beside these, what this process was itself handed over
  int in = -1;                           // becomes its stdin; -1: nothing to read
  int out = -1;                          // becomes its stdout; -1: the launcher's
  int error = -1;                        // becomes its stderr; -1: the launcher's
  std::vector<int> cpus;                 // that it may run on; empty: where the launcher may
};

// How a child ended.
struct ChildEnd {
  int code = 0;    // its exit code, when signal is 0
  int signal = 0;  // that killed it
};

// "exit code 3" or "killed by SIGSEGV".
std::string describe(const ChildEnd& end);

class Child {
 public:
  // Call on the main thread: the kernel ties a child to the thread that made it. Throws UserError
  // when the program is missing.
  explicit Child(const ChildCommand& command);
  Child(Child&& other) noexcept = default;
  // Kills and reaps one that still runs. One that hangs in the kernel is left behind after a
  // second.
  ~Child();

  // Becomes readable when the child has ended.
  int descriptor() const { return watch_.descriptor(); }
  pid_t pid() const { return pid_; }
  bool running() const { return static_cast<bool>(watch_); }

  void send(int signal) const;
  void send_group(int signal) const;  // to the child and all it started
  void kill_group() const { send_group(SIGKILL); }
  // Nothing while it runs. What it has left behind in its group is killed. Throws IoError when
  // somebody else has reaped it.
  std::optional<ChildEnd> reap();

 private:
  pid_t pid_ = -1;
  File watch_;  // a pidfd
};

}  // namespace skein::launch
