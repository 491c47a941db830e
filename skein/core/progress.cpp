// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "skein/core/amounts.h"
#include "skein/core/log.h"
#include "skein/core/terminal_stream.h"

namespace skein {
namespace {

constexpr auto kFirst = std::chrono::seconds(1);
constexpr auto kLive = std::chrono::milliseconds(200);
constexpr auto kPlain = std::chrono::seconds(10);

}  // namespace

Progress::Progress(std::string what, uint64_t total, std::string unit)
    : what_(std::move(what)),
      total_(total),
      unit_(std::move(unit)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      next_(start_ + kFirst) {}

Progress::~Progress() {
  if (is_shown_ && is_terminal_) terminal_error().write("\r\033[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::add(uint64_t count) {
  const std::lock_guard lock(mutex_);
  done_ += count;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? Clock::duration(kLive) : Clock::duration(kPlain));
  is_shown_ = true;
  show(now);
}

std::string Progress::amounts(double rate) const {
  if (!unit_.empty()) return fmt::format("{} of {} {}, {:.3g}/s", done_, total_, unit_, rate);
  return fmt::format("{} of {}, {}/s", shown_bytes(done_), shown_bytes(total_),
                     shown_bytes(static_cast<uint64_t>(rate)));
}

void Progress::show(Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done_) / total_);
  const double rate = static_cast<double>(done_) / seconds;
  const auto text =
      fmt::format("{}: {:3.0f}% {}, {:.0f} s left", what_, 100 * share, amounts(rate),
                  static_cast<double>(total_ - std::min(done_, total_)) / std::max(rate, 1e-9));
  if (!is_terminal_) return log_info("{}", text);
  constexpr int kWidth = 20;
  const int filled = static_cast<int>(share * kWidth);
  terminal_error().write(fmt::format("\r{} |{}{}|\033[K", text, std::string(filled, '#'),
                                     std::string(kWidth - filled, ' ')));
}

}  // namespace skein
