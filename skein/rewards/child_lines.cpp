// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/child_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/rewards/protocol.h"

namespace skein::rewards {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{100}, kLastPatience{1000};
constexpr size_t kMaxErrorLine = 4096;
constexpr int64_t kMaxErrorLines = 1000;  // to the log, of one exchange

struct Pipe {
  File reader, writer;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  return {File(ends[0]), File(ends[1])};
}

void do_not_wait(const File& file) { fcntl(file.descriptor(), F_SETFL, O_NONBLOCK); }

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// As a shell would find it.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    throw UserError(fmt::format("reward_program: '{}' is no program that may be run", shown(name)));
  }
  const char* path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!folders.empty()) {
    const auto colon = std::min(folders.find(':'), folders.size());
    const auto candidate = fs::path(folders.substr(0, colon)) / name;
    if (colon > 0 && is_program(candidate)) return candidate.string();
    folders.remove_prefix(std::min(colon + 1, folders.size()));
  }
  throw UserError(fmt::format(
      "reward_program: no program '{}' in PATH; it is a list of a program and its arguments, as "
      "[python3, rewards.py]",
      shown(name)));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

// A write to a program that is gone is an error to look at, not the end of this process.
class HeldPipeSignal {
 public:
  HeldPipeSignal() {
    sigset_t waiting;
    sigpending(&waiting);
    waited_before_ = sigismember(&waiting, SIGPIPE) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~HeldPipeSignal() {
    const timespec at_once{};
    while (!waited_before_ && sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldPipeSignal(const HeldPipeSignal&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool waited_before_ = false;
};

enum class Arrived { kBytes, kNothing, kEnd };

Arrived read_some(const File& file, std::string& bytes) {
  std::array<char, 1 << 16> buffer{};
  const auto got = read(file.descriptor(), buffer.data(), buffer.size());
  if (got > 0) bytes.assign(buffer.data(), static_cast<size_t>(got));
  if (got > 0) return Arrived::kBytes;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? Arrived::kNothing : Arrived::kEnd;
}

}  // namespace

ChildLines::ChildLines(const std::vector<std::string>& command,
                       std::function<bool()> stop_requested)
    : stop_requested_(std::move(stop_requested)) {
  auto in = make_pipe(), out = make_pipe(), errors = make_pipe();
  launch::ChildCommand start{.arguments = command,
                             .environment = own_environment(),
                             .keeps_descriptors = false,
                             .in = in.reader.descriptor(),
                             .out = out.writer.descriptor(),
                             .error = errors.writer.descriptor()};
  start.arguments.front() = find_program(command.front());
  child_.emplace(start);
  in_ = std::move(in.writer);
  out_ = std::move(out.reader);
  errors_ = std::move(errors.reader);
  for (const auto* file : {&in_, &out_, &errors_}) do_not_wait(*file);
}

ChildLines::~ChildLines() {
  in_ = File();
  std::string_view nothing;
  const auto deadline = Clock::now() + kLastPatience;
  try {
    while (!is_busy_ && !is_too_long_ && !has_ended() && Clock::now() < deadline) {
      poll_once(nothing, milliseconds(20));
      received_.clear();
    }
  } catch (const std::exception&) {
    // The child's destructor kills what is left.
  }
}

std::optional<ChildTrouble> ChildLines::exchange(std::string_view text, size_t count, Time deadline,
                                                 std::vector<std::string>& lines) {
  num_error_lines_ = 0;
  is_busy_ = true;
  while (true) {
    while (!received_.empty() && lines.size() < count) {
      lines.push_back(std::move(received_.front()));
      received_.pop_front();
    }
    // One that says more than was asked for may go on for ever.
    if (lines.size() == count && (text.empty() || !received_.empty())) {
      is_busy_ = false;
      return std::nullopt;
    }
    if (is_too_long_) {
      return ChildTrouble{ChildTrouble::Kind::kTooLong,
                          fmt::format("has said a line of more than {} bytes", kMaxLine)};
    }
    if (is_out_closed_) return ended();
    if (stop_requested_ && stop_requested_())
      throw Stopped("stopped while the reward program works");
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) {
      return ChildTrouble{ChildTrouble::Kind::kLate, "is late"};
    }
    // A child of its own may hold its output open after its end.
    const bool is_over = has_ended();
    if (!poll_once(text, std::min(kLook, std::chrono::ceil<milliseconds>(left))) && is_over) {
      return ended();
    }
  }
}

std::optional<std::string> ChildLines::unasked() {
  std::string_view nothing;
  if (received_.empty() && begun_.empty()) poll_once(nothing, milliseconds(0));
  if (!received_.empty()) return received_.front();
  return begun_.empty() ? std::nullopt : std::optional(begun_);
}

bool ChildLines::poll_once(std::string_view& unsent, milliseconds patience) {
  std::array<pollfd, 3> entries = {{{is_out_closed_ ? -1 : out_.descriptor(), POLLIN, 0},
                                    {errors_ ? errors_.descriptor() : -1, POLLIN, 0},
                                    {unsent.empty() ? -1 : in_.descriptor(), POLLOUT, 0}}};
  const int ready = poll(entries.data(), entries.size(), static_cast<int>(patience.count()));
  if (ready < 0 && errno != EINTR) throw_errno("cannot wait for the reward program");
  if (ready <= 0) return false;
  if (entries[0].revents != 0) receive();
  if (entries[1].revents != 0) receive_errors();
  if (entries[2].revents != 0) send(unsent);
  return true;
}

void ChildLines::send(std::string_view& unsent) {
  const HeldPipeSignal held;
  const auto sent = write(in_.descriptor(), unsent.data(), unsent.size());
  if (sent > 0) unsent.remove_prefix(static_cast<size_t>(sent));
  // It reads no more: what it still has to say shows whether that was right.
  if (sent < 0 && errno != EAGAIN && errno != EINTR) unsent = {};
}

void ChildLines::receive() {
  std::string bytes;
  switch (read_some(out_, bytes)) {
    case Arrived::kNothing:
      return;
    case Arrived::kEnd:
      is_out_closed_ = true;
      return;
    case Arrived::kBytes:
      break;
  }
  std::string_view rest = bytes;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    begun_ += rest.substr(0, end);
    is_too_long_ = is_too_long_ || begun_.size() > kMaxLine;
    received_.push_back(std::exchange(begun_, {}));
    rest.remove_prefix(end + 1);
  }
  begun_ += rest;
  is_too_long_ = is_too_long_ || begun_.size() > kMaxLine;
}

void ChildLines::receive_errors() {
  std::string bytes;
  switch (read_some(errors_, bytes)) {
    case Arrived::kNothing:
      return;
    case Arrived::kEnd:
      errors_ = File();
      return;
    case Arrived::kBytes:
      break;
  }
  for (const char c : bytes) {
    if (c == '\n') {
      end_of_error_line();
    } else if (error_line_.size() < kMaxErrorLine) {
      error_line_ += c;
    }
  }
}

void ChildLines::end_of_error_line() {
  const auto line = std::exchange(error_line_, {});
  if (line.find_first_not_of(" \t\r") == std::string::npos) return;
  last_words_ = line;
  if (++num_error_lines_ <= kMaxErrorLines) log_info("reward program: {}", line);
  if (num_error_lines_ == kMaxErrorLines) log_info("reward program: it goes on; not shown");
}

bool ChildLines::has_ended() {
  if (!end_) end_ = child_->reap();
  return end_.has_value();
}

ChildTrouble ChildLines::ended() {
  std::string_view nothing;
  const auto deadline = Clock::now() + kLastPatience;
  while (!has_ended() && Clock::now() < deadline) poll_once(nothing, milliseconds(20));
  for (int i = 0; errors_ && i < 16; ++i) receive_errors();
  end_of_error_line();
  auto what = end_ ? fmt::format("has ended ({})", describe(*end_))
                   : std::string("has closed its output without ending");
  if (!last_words_.empty()) what += fmt::format("; its last words: {}", shown(last_words_));
  return {ChildTrouble::Kind::kEnded, std::move(what)};
}

}  // namespace skein::rewards
