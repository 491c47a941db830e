// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "skein/core/log.h"
#include "skein/core/log_writer.h"
#include "skein/core/terminal_stream.h"
#include "skein/report/host.h"

namespace skein::report {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kSmoothing = 0.3;  // tqdm's
constexpr int kShortestBar = 5;
constexpr int kLongestBar = 60;
constexpr std::string_view kClearLine = "\r\x1b[K";

struct Range {
  uint32_t first, last;
};
// East Asian wide and full-width characters and emoji (Unicode's EastAsianWidth.txt, in blocks).
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
    {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
constexpr Range kZero[] = {{0x0300, 0x036F}, {0x200B, 0x200F}, {0xFE00, 0xFE0F}};

bool in(std::span<const Range> ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

int code_point_width(uint32_t c) {
  if (c < 0x20 || in(kZero, c)) return 0;
  return in(kWide, c) ? 2 : 1;
}

// Takes the first character off. A broken byte counts as one character of one column.
std::pair<std::string_view, int> take_character(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length > text.size()) length = 1;
  uint32_t c = length == 1 ? lead : lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) c = c << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  const auto character = text.substr(0, length);
  text.remove_prefix(length);
  return {character, code_point_width(c)};
}

std::string cut_to_width(std::string_view text, int width) {
  std::string out;
  while (!text.empty()) {
    const auto [character, columns] = take_character(text);
    if (columns > width) break;
    width -= columns;
    out += character;
  }
  return out;
}

std::string bar(double share, int width) {
  static constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(share * width * 8);
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 != 0 ? 1 : 0);
  return out + std::string(static_cast<size_t>(width - used), ' ');
}

std::string rate_text(const std::optional<double>& steps_per_second) {
  if (!steps_per_second || *steps_per_second <= 0) return "?it/s";
  if (*steps_per_second < 1) return fmt::format("{:5.2f}s/it", 1 / *steps_per_second);
  return fmt::format("{:5.2f}it/s", *steps_per_second);
}

std::string times_text(const Progress& p) {
  const bool known = p.steps_per_second && *p.steps_per_second > 0;
  const auto left =
      known ? clock_text(static_cast<double>(p.total - p.step) / *p.steps_per_second) : "?";
  return fmt::format("{}<{}", clock_text(p.elapsed_seconds), left);
}

double share_done(const Progress& p) {
  if (p.total <= 0) return 1;
  return std::clamp(static_cast<double>(p.step) / static_cast<double>(p.total), 0.0, 1.0);
}

std::string right_side(const Progress& p, size_t num_fields) {
  auto out =
      fmt::format("| {}/{} [{}, {}", p.step, p.total, times_text(p), rate_text(p.steps_per_second));
  for (size_t i = 0; i < num_fields; ++i)
    out += fmt::format(", {}={}", p.fields[i].first, p.fields[i].second);
  return out + "]";
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int stderr_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{:02}:{:02}", minutes, whole % 60);
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) width += take_character(text).second;
  return width;
}

std::string render_progress(const Progress& progress, int width) {
  const auto left = fmt::format("{:3.0f}%|", std::floor(100 * share_done(progress)));
  for (size_t num_fields = progress.fields.size() + 1; num_fields-- > 0;) {
    const auto right = right_side(progress, num_fields);
    const int room = width - display_width(left) - display_width(right);
    if (room >= kShortestBar)
      return left + bar(share_done(progress), std::min(room, kLongestBar)) + right;
  }
  return cut_to_width(left + right_side(progress, 0), width);
}

std::string plain_progress(const Progress& progress) {
  auto out = fmt::format("step {}/{} ({:.0f}%)", progress.step, progress.total,
                         std::floor(100 * share_done(progress)));
  for (const auto& [name, value] : progress.fields) out += fmt::format("  {} {}", name, value);
  auto rate = rate_text(progress.steps_per_second);
  rate.erase(0, rate.find_first_not_of(' '));
  return out + fmt::format("  [{}, {}]", times_text(progress), rate);
}

bool stderr_shows_live_line() {
  return isatty(STDERR_FILENO) == 1 && environment("CI").empty() &&
         environment("NO_COLOR").empty() && environment("TERM", "dumb") != "dumb";
}

Terminal::Device Terminal::real_device() {
  const auto write = [](std::string_view text) { terminal_error().write(text); };
  return {write, stderr_width, monotonic_seconds};
}

Terminal::Terminal(const Options& options, Device device)
    : options_(options), device_(std::move(device)) {
  start_ = timed_at_ = device_.seconds();
  progress_.step = options.first_step;
  progress_.total = options.total_steps;
  if (options_.live) set_log_writer([this](std::string_view line) { print_above(line); });
}

Terminal::~Terminal() {
  if (!options_.live) return;
  set_log_writer({});
  const std::lock_guard lock(mutex_);
  device_.write(live_line() + "\n");
}

void Terminal::update(int64_t step) {
  const std::lock_guard lock(mutex_);
  advance(step);
  if (options_.live && (last_draw_ < 0 || device_.seconds() - last_draw_ >= kRedrawSeconds))
    device_.write(live_line());
}

void Terminal::record(int64_t step, ProgressFields fields) {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    progress_.fields = std::move(fields);
    advance(step);
    line = plain_progress(progress_);
  }
  log_info("{}", line);  // comes back through print_above(), which takes the lock
}

void Terminal::print_above(std::string_view line) {
  const std::lock_guard lock(mutex_);
  device_.write(fmt::format("{}{}{}", kClearLine, line, live_line()));  // at once: no flicker
}

// The rate forgets slowly: a pause for a checkpoint moves it, a fast first step does not rule it.
void Terminal::advance(int64_t step) {
  const double now = device_.seconds();
  const auto steps = static_cast<double>(step - progress_.step);
  progress_.elapsed_seconds = now - start_;
  if (steps <= 0) return;
  const bool is_first = mean_seconds_ == 0;
  const double weight = is_first ? 1 : kSmoothing;
  mean_steps_ += weight * (steps - mean_steps_);
  mean_seconds_ += weight * (now - timed_at_ - mean_seconds_);
  if (mean_seconds_ > 0) progress_.steps_per_second = mean_steps_ / mean_seconds_;
  progress_.step = step;
  timed_at_ = now;
}

std::string Terminal::live_line() {
  last_draw_ = device_.seconds();
  // The last column stays free: a terminal that wraps there would need two lines.
  return fmt::format("{}{}", kClearLine,
                     render_progress(progress_, std::max(1, device_.width() - 1)));
}

}  // namespace skein::report
