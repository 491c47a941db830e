// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/chat_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "skein/core/error.h"
#include "skein/text/parts/unicode.h"

namespace skein::cli {

ChatLine ChatInput::next() {
  size_t searched = 0;
  while (true) {
    const auto end = held_.find('\n', searched);
    if (end != std::string::npos) return take(end, 1);
    if (is_over_) break;
    searched = held_.size();
    if (searched > kMaxLineBytes) {
      throw UserError(fmt::format("stdin:{}: the line is longer than {} MiB", number_ + 1,
                                  kMaxLineBytes >> 20));
    }
    if (is_interrupted()) {
      held_.clear();
      return {.kind = ChatLine::Kind::kInterrupted, .text = {}, .number = number_};
    }
    char buffer[1 << 16];
    const auto got = ::read(descriptor_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot read stdin");
    is_over_ = got == 0;
    held_.append(buffer, static_cast<size_t>(got));
  }
  if (held_.empty()) return {.kind = ChatLine::Kind::kEnd, .text = {}, .number = number_};
  return take(held_.size(), 0);
}

// Waits until there is something to read, or an interrupt.
bool ChatInput::is_interrupted() const {
  if (interrupts_ < 0) return false;
  pollfd waits[] = {{descriptor_, POLLIN, 0}, {interrupts_, POLLIN, 0}};
  while (::poll(waits, 2, -1) < 0) {
    if (errno != EINTR) throw_errno("cannot wait for stdin");
  }
  return waits[1].revents != 0;
}

ChatLine ChatInput::take(size_t bytes, size_t end_bytes) {
  ChatLine line{.kind = ChatLine::Kind::kText, .text = held_.substr(0, bytes), .number = ++number_};
  held_.erase(0, bytes + end_bytes);
  if (line.text.ends_with('\r')) line.text.pop_back();
  text::require_utf8(line.text, "stdin", number_);
  return line;
}

}  // namespace skein::cli
