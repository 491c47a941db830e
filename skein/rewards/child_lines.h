// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A child process that is talked with in lines, and never waited for without an end.
//
// What it says on stderr goes to the log. It dies with the thread that made it.

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/core/clock.h"
#include "skein/core/file.h"
#include "skein/launch/process/child.h"

namespace skein::rewards {

// Why no further line will come.
struct ChildTrouble {
  enum class Kind { kEnded, kLate, kTooLong } kind = Kind::kEnded;
  std::string what;  // "has ended with exit code 1; its last words: …"
};

class ChildLines {
 public:
  // Throws UserError when the program cannot be found or started. `stop_requested` may be empty.
  ChildLines(const std::vector<std::string>& command, std::function<bool()> stop_requested);
  // The child sees the end of its input, has a second to end, and is killed; at once after trouble.
  ~ChildLines();

  // Sends `text` and takes `count` lines, into `lines`, as they come; whichever first. Throws
  // Stopped.
  std::optional<ChildTrouble> exchange(std::string_view text, size_t count, Time deadline,
                                       std::vector<std::string>& lines);
  // Has it said something that nobody has asked for?
  std::optional<std::string> unasked();

 private:
  // Has anything come, or gone?
  bool poll_once(std::string_view& unsent, std::chrono::milliseconds patience);
  void send(std::string_view& unsent);
  void receive();
  void receive_errors();
  void end_of_error_line();
  bool has_ended();
  // Sees to the end of one that says nothing more.
  ChildTrouble ended();

  const std::function<bool()> stop_requested_;
  File in_, out_, errors_;  // our ends
  std::optional<launch::Child> child_;
  std::optional<launch::ChildEnd> end_;  // once it is known: nobody is told twice
  std::string begun_;                    // a line of stdout without its end
  std::deque<std::string> received_;
  bool is_out_closed_ = false, is_too_long_ = false;
  bool is_busy_ = false;  // in the middle of an exchange, which nobody waits for any more
  std::string error_line_, last_words_;
  int64_t num_error_lines_ = 0;  // in this exchange
};

}  // namespace skein::rewards
