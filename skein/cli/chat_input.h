// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does somebody say? Lines of a terminal, a pipe or a file.

#include <cstdint>
#include <string>

namespace skein::cli {

struct ChatLine {
  enum class Kind {
    kText,
    kInterrupted,  // Ctrl-C has come: what was typed so far is gone
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;    // without its line end
  int64_t number = 0;  // from 1
};

class ChatInput {
 public:
  static constexpr size_t kMaxLineBytes = size_t{16} << 20;  // more than any context holds

  // Descriptors stay the caller's. `interrupts` (-1: none) is readable once Ctrl-C has come: unlike
  // a signal it cannot come a moment before the wait and be missed.
  explicit ChatInput(int descriptor, int interrupts = -1)
      : descriptor_(descriptor), interrupts_(interrupts) {}

  // Waits for a line. Throws UserError for one that is too long, IoError for one that is not UTF-8;
  // both name it.
  ChatLine next();

 private:
  ChatLine take(size_t bytes, size_t end_bytes);
  bool is_interrupted() const;

  int descriptor_, interrupts_;
  std::string held_;  // read, not yet taken
  bool is_over_ = false;
  int64_t number_ = 0;
};

}  // namespace skein::cli
