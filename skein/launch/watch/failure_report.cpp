// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/failure_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/launch/process/slow_disk.h"

namespace skein::launch {
namespace {

// "step 12, backward": the step under way, or the one that was done last.
std::string place_of(const board::BoardView& board) {
  if (board.pid == 0) return "";  // it never came to write its board
  switch (board.phase) {
    case board::Phase::kStarting:
    case board::Phase::kJoining:
    case board::Phase::kLoading:
      return name_of(board.phase);
    case board::Phase::kData:
    case board::Phase::kForward:
    case board::Phase::kBackward:
    case board::Phase::kOptimizer:
    case board::Phase::kRollout:
    case board::Phase::kReward:
      return fmt::format("step {}, {}", board.step + 1, name_of(board.phase));
    default:
      return fmt::format("after step {}, {}", board.step, name_of(board.phase));
  }
}

std::string cause_of(const FailureReport& report) {
  const auto& end = report.end;
  if (end.signal == 0) return fmt::format("failed with {}", describe(end));
  if (end.signal != SIGKILL) return "was " + describe(end);
  return fmt::format("was {} ({})", describe(end),
                     report.oom_counted ? "out of memory: the cgroup counted an OOM kill"
                                        : "probably out of memory, or killed by hand");
}

// Lines after the first are set under the text they belong to.
std::string indented(const std::string& text, size_t columns) {
  std::string result;
  for (const char letter : text) {
    result += letter;
    if (letter == '\n') result.append(columns, ' ');
  }
  return result;
}

std::string first_line(const FailureReport& report) {
  if (report.verdict) return indented(report.verdict->text, 2);
  auto line = fmt::format("rank {} of {} on {} (pid {}) {}", report.rank, report.size, report.host,
                          report.pid, cause_of(report));
  if (const auto place = place_of(report.board); !place.empty()) line += ", " + place;
  if (!report.message.empty()) line += ": " + indented(report.message, 2);
  return line;
}

std::string error_json(const std::string& message, nlohmann::ordered_json facts) {
  // torchrun reads these two; a time as text is what it writes itself.
  facts["py_callstack"] = message;
  facts["timestamp"] = std::to_string(std::time(nullptr));
  const nlohmann::ordered_json whole = {
      {"message", {{"message", message}, {"extraInfo", std::move(facts)}}}};
  return whole.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Into what is there: a device, a pipe that somebody reads, a link's target.
void write_through(const fs::path& path, std::string_view text) {
  const auto failed = [&] { throw_errno("cannot write " + path.string()); };
  const File file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) failed();
  while (!text.empty()) {
    const auto count = ::write(file.descriptor(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed();
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void write_where_asked(const std::string& json) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    const auto kind = fs::symlink_status(path).type();
    const bool is_plain = kind == fs::file_type::regular || kind == fs::file_type::not_found;
    // What is no plain file must not be replaced by one: it may be /dev/null.
    if (is_plain) {
      write_file_atomically(path, json);
    } else {
      write_through(path, json);
    }
  } catch (const std::exception& error) {
    log_warning("TORCHELASTIC_ERROR_FILE: {}", error.what());
  }
}

// Files of /proc and /sys say that their size is 0.
std::string read_kernel_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number after `word` in a file of words and numbers.
std::optional<int64_t> number_after(const fs::path& path, const std::string& word) {
  std::istringstream words(read_kernel_file(path));
  for (std::string name; words >> name;) {
    int64_t number = 0;
    if (name == word && words >> number) return number;
  }
  return std::nullopt;
}

}  // namespace

std::string to_text(const FailureReport& report) {
  auto text = first_line(report);
  const auto add = [&](const char* label, const std::string& content) {
    if (!content.empty()) text += fmt::format("\n  {:<14}{}", label, indented(content, 16));
  };
  add("last call", report.last_calls);
  add("saved", report.saved);
  add("logs", report.logs);
  add("remains", report.remains);
  add("then", report.decision);
  add("to continue", report.command);
  return text;
}

std::string to_error_json(const FailureReport& report) {
  nlohmann::ordered_json facts = {
      {"rank", report.rank}, {"size", report.size},       {"host", report.host},
      {"pid", report.pid},   {"step", report.board.step}, {"phase", name_of(report.board.phase)}};
  if (report.end.signal != 0)
    facts["signal"] = report.end.signal;
  else
    facts["exit_code"] = report.end.code;
  return error_json(to_text(report), std::move(facts));
}

void write_error_file(const FailureReport& report) { write_where_asked(to_error_json(report)); }

void write_error_file(const std::string& message) {
  write_where_asked(error_json(message, nlohmann::ordered_json::object()));
}

std::optional<int64_t> oom_kills(const fs::path& membership, const fs::path& mount) {
  std::istringstream lines(read_kernel_file(membership));
  // Lines are "0::/path" (version 2) and "4:memory:/path" (version 1).
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool second_version = controllers.empty();
    if (!second_version && controllers != "memory") continue;
    const auto base = second_version ? mount : mount / "memory";
    const char* file = second_version ? "memory.events" : "memory.oom_control";
    for (auto group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      if (const auto count = number_after(base / group / file, "oom_kill")) return count;
      if (group.empty()) break;
    }
  }
  return std::nullopt;
}

std::string shorter_path(const fs::path& path) {
  std::error_code error;
  auto whole = path.lexically_normal().string();
  const auto here = fs::current_path(error);  // proximate() asks for it too, and throws
  if (error) return whole;
  const auto near = fs::proximate(path, here, error).string();
  return !error && near.size() < whole.size() ? near : whole;
}

FailureCount::FailureCount(const fs::path& output) : file_(output / "failures.json") {
  std::error_code error;
  if (!fs::exists(file_, error)) return;
  try {
    const auto saved = parse_json(read_file(file_, kMessageLimits.bytes), kMessageLimits);
    step_ = saved.at("step").get<int64_t>();
    count_ = saved.at("count").get<int>();
  } catch (const std::exception& problem) {
    log_warning("{} was not written by skein: it stays, and failed steps are not counted: {}",
                file_.string(), problem.what());
    file_.clear();
    step_ = -1;
  }
}

int FailureCount::add(int64_t step, const std::vector<int64_t>& samples) {
  count_ = step == step_ ? count_ + 1 : 1;
  step_ = step;
  if (file_.empty()) return count_;
  const nlohmann::ordered_json saved = {{"step", step}, {"count", count_}, {"samples", samples}};
  try {
    run_apart([&] { write_file_atomically(file_, saved.dump() + "\n"); });
  } catch (const IoError& error) {
    log_warning("the failure of step {} is not counted for later starts: {}", step + 1,
                error.what());
  }
  return count_;
}

void FailureCount::clear() {
  step_ = -1;
  count_ = 0;
  if (file_.empty()) return;
  run_apart([this] {
    std::error_code ignored;
    fs::remove(file_, ignored);
  });
}

}  // namespace skein::launch
