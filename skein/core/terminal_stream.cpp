// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/terminal_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "skein/core/clock.h"

namespace skein {
namespace {

constexpr size_t kMostWaiting = size_t{1} << 20;
// POSIX: a pipe that says that it can be written takes this much without waiting.
constexpr size_t kPipeRoom = 4096;

bool can_wait(mode_t kind, int descriptor) {
  return kind == S_IFIFO || (kind == S_IFCHR && isatty(descriptor) == 1);
}

}  // namespace

// It may lead elsewhere since the last time: tests and shells put other files in its place.
void TerminalStream::look_where_it_leads() {
  struct stat info{};
  const bool is_open = fstat(descriptor_, &info) == 0;
  const std::pair found{info.st_dev, info.st_ino};
  if (is_open && known_ == found) return;
  known_.reset();
  own_ = File();
  if (!is_open) return;
  known_ = found;
  kind_ = info.st_mode & S_IFMT;
  if (!can_wait(kind_, descriptor_)) return;
  const auto path = fmt::format("/proc/self/fd/{}", descriptor_);
  own_ = File(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

ssize_t TerminalStream::try_to_write() {
  const auto size = waiting_.size();
  if (own_) return ::write(own_.descriptor(), waiting_.data(), size);
  if (kind_ == S_IFSOCK) {
    return ::send(descriptor_, waiting_.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (!can_wait(kind_, descriptor_)) return ::write(descriptor_, waiting_.data(), size);
  pollfd ready{descriptor_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(descriptor_, waiting_.data(), std::min(size, kPipeRoom));
}

// True when nothing waits any more.
bool TerminalStream::write_waiting() {
  while (!waiting_.empty()) {
    const auto count = try_to_write();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) {  // nobody is there any more
      has_failed_ = true;
      waiting_.clear();
      dropped_ = 0;
      return true;
    }
    waiting_.erase(0, static_cast<size_t>(count));
    if (waiting_.empty()) tell_dropped();
  }
  return true;
}

void TerminalStream::tell_dropped() {
  if (dropped_ > 0)
    waiting_ = fmt::format("({} lines are not shown: nobody read them)\n", dropped_);
  dropped_ = 0;
}

void TerminalStream::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  look_where_it_leads();
  const auto lines = std::ranges::count(text, '\n');
  if (!write_waiting()) {
    if (lines == 0) return;
    if (waiting_.size() + text.size() > kMostWaiting) {
      dropped_ += lines;
      return;
    }
  }
  waiting_ += text;
  write_waiting();
}

void TerminalStream::flush(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return;
  look_where_it_leads();
  const auto deadline = Clock::now() + patience;
  while (!write_waiting()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{own_ ? own_.descriptor() : descriptor_, POLLOUT, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) return;
  }
}

bool TerminalStream::has_failed() {
  const std::lock_guard lock(mutex_);
  return has_failed_;
}

std::optional<pollfd> TerminalStream::entry() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  return pollfd{own_ ? own_.descriptor() : descriptor_, POLLOUT, 0};
}

TerminalStream& terminal_out() {
  static auto* stream = new TerminalStream(STDOUT_FILENO);
  return *stream;
}

TerminalStream& terminal_error() {
  static auto* stream = new TerminalStream(STDERR_FILENO);
  return *stream;
}

}  // namespace skein
