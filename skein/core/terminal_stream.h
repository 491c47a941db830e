// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Messages for stdout or stderr that never wait for who reads them: a terminal under Ctrl-S or a
// stuck pipe must not hold up a run.
//
// What cannot be written waits in memory. What is more than 1 MiB is dropped, and a line says how
// many lines were. The descriptor is shared with other programs, whose writes are to wait as ever,
// so that its flags stay as they are: a terminal or a pipe is opened a second time. (Where that is
// not allowed, as after `su`, little is written at a time: that waits only if another program takes
// the room away in between.) Thread-safe.

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein {

class TerminalStream {
 public:
  explicit TerminalStream(int descriptor) : descriptor_(descriptor) {}
  TerminalStream(const TerminalStream&) = delete;

  // Whole lines, or a text without a line's end: that redraws a line, and is left out while
  // anything waits.
  void write(std::string_view text);
  // Writes what waits, within `patience`.
  void flush(std::chrono::milliseconds patience = {});
  // Has a write failed, because nobody reads any more or there is no room?
  bool has_failed();
  // What to poll() for while anything waits.
  std::optional<pollfd> entry();

 private:
  void look_where_it_leads();
  bool write_waiting();
  ssize_t try_to_write();
  void tell_dropped();

  const int descriptor_;
  std::mutex mutex_;
  mode_t kind_ = 0;                               // S_IFIFO, …
  std::optional<std::pair<dev_t, ino_t>> known_;  // what the descriptor led to at the last look
  File own_;                                      // the same, opened a second time; or none
  std::string waiting_;
  int64_t dropped_ = 0;  // lines
  bool has_failed_ = false;
};

// This process's; they are never destroyed, so that all threads can use them to the end.
TerminalStream& terminal_out();
TerminalStream& terminal_error();

}  // namespace skein
