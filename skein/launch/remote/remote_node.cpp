// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The other end of remote_start.cpp: one order, then that command under its starter's eyes.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/launch/placement/detect.h"
#include "skein/launch/process/child.h"
#include "skein/launch/process/signal_inbox.h"
#include "skein/launch/remote/remote_start.h"

namespace skein::launch {
namespace {

using Json = nlohmann::json;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kLongestOrder = size_t{1} << 20;
constexpr Milliseconds kOrderTimeout{60'000};
// A starter that is gone can send no second order.
constexpr Milliseconds kOrphanGrace{60'000};

std::string to_hex(const control::Secret& secret) {
  std::string text(secret.size() * 2 + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), secret.data(), secret.size());
  text.pop_back();
  return text;
}

control::Secret from_hex(const std::string& text) {
  control::Secret secret;
  size_t size = 0;
  const int code = sodium_hex2bin(secret.data(), secret.size(), text.data(), text.size(), nullptr,
                                  &size, nullptr);
  if (code != 0 || size != secret.size() || text.size() != 2 * secret.size()) {
    throw UserError("remote-node: the order's secret is not 64 hexadecimal digits");
  }
  return secret;
}

// A secret file that has no name and is gone with its last process. Digits, since such a file's
// white space does not count.
File make_secret_file(const control::Secret& secret) {
  File file(memfd_create("skein-secret", MFD_CLOEXEC));
  if (!file || fchmod(file.descriptor(), 0600) != 0) throw_errno("cannot make an anonymous file");
  const auto digits = to_hex(secret);
  file.write_at(0, std::as_bytes(std::span(digits)));
  return file;
}

// The starter's lines.
class Orders {
 public:
  bool at_end() const { return at_end_; }

  // Nothing yet, or the next line.
  std::optional<std::string> take() {
    if (const auto line = split()) return line;
    char bytes[4096];
    const auto got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) at_end_ = true;
    if (got > 0) waiting_.append(bytes, static_cast<size_t>(got));
    if (waiting_.size() > kLongestOrder) {
      throw UserError(fmt::format("remote-node: an order of more than {} bytes", kLongestOrder));
    }
    return split();
  }

 private:
  std::optional<std::string> split() {
    const auto end = waiting_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    auto line = waiting_.substr(0, end);
    waiting_.erase(0, end + 1);
    return line;
  }

  std::string waiting_;
  bool at_end_ = false;
};

std::string first_order(Orders& orders) {
  const auto deadline = Clock::now() + kOrderTimeout;
  while (Clock::now() < deadline && !orders.at_end()) {
    pollfd entry{STDIN_FILENO, POLLIN, 0};
    poll(&entry, 1, 1000);
    if (entry.revents == 0) continue;
    if (auto line = orders.take()) return *line;
  }
  throw UserError(
      "remote-node: no order came; `skein train --hostfile FILE` starts this command, users do "
      "not");
}

ChildCommand node_command(const NodeStart& order, int secret) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  ChildCommand command{.arguments = {program}, .environment = {}, .inherited = {secret}};
  auto& words = command.arguments;
  words.insert(words.end(), order.arguments.begin(), order.arguments.end());
  words.insert(words.end(), {"--secret-file", fmt::format("/proc/self/fd/{}", secret)});
  auto environment = read_environment();
  for (const auto& [name, value] : order.variables) environment[name] = value;
  for (const auto& [name, value] : environment) command.environment.push_back(name + "=" + value);
  return command;
}

// One launcher from its start to its end.
class Launcher {
 public:
  Launcher(const ChildCommand& command, Orders& orders) : child_(command), orders_(orders) {}

  int watch(const SignalInbox& inbox) {
    while (true) {
      wait_for_event(inbox);
      while (const auto signal = inbox.take()) child_.send(*signal);
      obey();
      if (kill_at_ && *kill_at_ <= Clock::now()) child_.kill_group();
      if (const auto end = child_.reap()) return code_of(*end);
    }
  }

 private:
  void wait_for_event(const SignalInbox& inbox) const {
    std::vector<pollfd> entries{{child_.descriptor(), POLLIN, 0}, {inbox.descriptor(), POLLIN, 0}};
    if (!orders_.at_end()) entries.push_back({STDIN_FILENO, POLLIN, 0});
    poll(entries.data(), entries.size(), kill_at_ ? 1000 : -1);
  }

  void obey() {
    pollfd entry{STDIN_FILENO, POLLIN, 0};
    if (orders_.at_end() || poll(&entry, 1, 0) <= 0) return;
    while (const auto line = orders_.take()) {
      if (*line == "stop") child_.send(SIGTERM);
      if (*line == "kill") {
        killed_ = true;
        child_.kill_group();  // its ranks die with it
      }
    }
    if (!orders_.at_end() || killed_) return;
    log_warning("launch: the host that started this node is gone: its ranks save and end");
    child_.send(SIGTERM);
    kill_at_ = Clock::now() + kOrphanGrace;
  }

  int code_of(const ChildEnd& end) const {
    if (killed_) return 128 + SIGKILL;
    return end.signal != 0 ? 128 + end.signal : end.code;  // as shells say it
  }

  Child child_;
  Orders& orders_;
  bool killed_ = false;
  std::optional<Time> kill_at_;
};

}  // namespace

std::string encode(const NodeStart& order) {
  return Json{{"arguments", order.arguments},
              {"directory", order.directory},
              {"variables", order.variables},
              {"secret", to_hex(order.secret)}}
      .dump();
}

NodeStart decode_start(const std::string& text) try {
  const auto json = parse_json(text, kMessageLimits);
  NodeStart order{.arguments = json.at("arguments"),
                  .directory = json.at("directory"),
                  .variables = json.at("variables"),
                  .secret = from_hex(json.at("secret"))};
  for (const auto& [name, value] : order.variables) {
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw UserError(fmt::format("remote-node: '{}' is no variable's name", name));
    }
  }
  return order;
} catch (const Json::exception& error) {
  throw UserError(fmt::format("remote-node: not an order: {}", error.what()));
} catch (const JsonError& error) {
  throw UserError(fmt::format("remote-node: not an order: {}", error.what()));
}

int run_remote_node() {
  const SignalInbox inbox;
  // With the starter its pipes go; ranks that print must still save. Children inherit this.
  std::signal(SIGPIPE, SIG_IGN);
  fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  Orders orders;
  const auto order = decode_start(first_order(orders));
  if (chdir(order.directory.c_str()) != 0) {
    throw UserError(
        fmt::format("cannot enter {} on this host: {}; a run's folder must have the same "
                    "path on all of its hosts",
                    order.directory, std::strerror(errno)));
  }
  const auto secret = make_secret_file(order.secret);
  return Launcher(node_command(order, secret.descriptor()), orders).watch(inbox);
}

}  // namespace skein::launch
