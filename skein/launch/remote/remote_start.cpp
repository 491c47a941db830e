// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/remote/remote_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "skein/control/socket.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/log.h"
#include "skein/core/terminal_stream.h"
#include "skein/launch/placement/detect.h"
#include "skein/launch/placement/hostfile.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/process/child.h"
#include "skein/launch/process/signal_inbox.h"
#include "skein/launch/watch/root_cause.h"

namespace skein::launch {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kSshFailed = 255;  // ssh's own exit code
constexpr Milliseconds kOrderTimeout{30'000};
constexpr size_t kLongestLine = 1 << 16;

// The shell at the other end does nothing with such a path but run it.
bool is_plain_path(std::string_view path) {
  return path.starts_with('/') && std::ranges::all_of(path, [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                  (letter >= 'a' && letter <= 'z') ||
                  std::string_view("._/+-").find(letter) != std::string_view::npos;
         });
}

std::string find_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const auto folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const auto candidate = std::filesystem::path(folder) / name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  throw UserError(
      fmt::format("starting other hosts needs {}, which is not on PATH; type: sudo apt-get install "
                  "openssh-client, or start `skein train` on each node by hand (--node-rank)",
                  name));
}

// What a node prints, line by line, with its name before each.
class PrefixedOutput {
 public:
  PrefixedOutput(const std::string& host, TerminalStream& to)
      : prefix_("[" + host + "] "), to_(to) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
    reader_ = File(ends[0]);
    writer_ = File(ends[1]);
    fcntl(reader_.descriptor(), F_SETFL, O_NONBLOCK);
  }

  int descriptor() const { return reader_.descriptor(); }  // -1: at its end
  int child_end() const { return writer_.descriptor(); }
  void close_child_end() { writer_ = File(); }

  // What is there now.
  void copy() {
    char bytes[4096];
    while (reader_) {
      const auto got = ::read(reader_.descriptor(), bytes, sizeof bytes);
      if (got < 0) return;
      if (got == 0) {
        finish();
        return;
      }
      waiting_.append(bytes, static_cast<size_t>(got));
      show_lines();
    }
  }

  // The node has ended; somebody it has left behind may still hold the other end.
  void finish() {
    reader_ = File();
    if (!waiting_.empty()) show(std::exchange(waiting_, {}));
  }

 private:
  void show_lines() {
    size_t begin = 0;
    for (size_t end; (end = waiting_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      show(std::string_view(waiting_).substr(begin, end - begin));
    }
    waiting_.erase(0, begin);
    if (waiting_.size() > kLongestLine) show(std::exchange(waiting_, {}));
  }

  void show(std::string_view line) const { to_.write(fmt::format("{}{}\n", prefix_, line)); }

  std::string prefix_;
  TerminalStream& to_;
  File reader_, writer_;
  std::string waiting_;
};

// A host's ssh, or its node itself where the host is this machine.
class Node {
 public:
  Node(const std::string& host, const std::vector<std::string>& command)
      : host_(host), out_(host, terminal_out()), error_(host, terminal_error()) {
    // A socket and no pipe: writing to one that died must be an error and no signal.
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw_errno("cannot make a pair of sockets");
    }
    orders_ = File(ends[0]);
    const File input(ends[1]);
    fcntl(orders_.descriptor(), F_SETFL, O_NONBLOCK);
    ChildCommand child{.arguments = command,
                       .environment = {},
                       .in = input.descriptor(),
                       .out = out_.child_end(),
                       .error = error_.child_end()};
    for (const auto& [name, value] : read_environment()) {
      child.environment.push_back(name + "=" + value);
    }
    child_.emplace(child);
    out_.close_child_end();
    error_.close_child_end();
  }

  const std::string& host() const { return host_; }
  bool running() const { return !end_.has_value(); }
  const std::optional<ChildEnd>& end() const { return end_; }

  void tell(const std::string& line) {
    try {
      control::send_all(orders_, line + "\n", Clock::now() + kOrderTimeout);
    } catch (const CommError&) {
      // It has ended, or will be ended as one that does not listen.
    }
  }
  void end_now() { child_->kill_group(); }

  void add_to(std::vector<pollfd>& entries) const {
    if (running()) entries.push_back({child_->descriptor(), POLLIN, 0});
    for (const int descriptor : {out_.descriptor(), error_.descriptor()}) {
      if (descriptor >= 0) entries.push_back({descriptor, POLLIN, 0});
    }
  }

  // True once: when the node has ended.
  bool look() {
    out_.copy();
    error_.copy();
    if (!running()) return false;
    end_ = child_->reap();
    if (running()) return false;
    for (auto* output : {&out_, &error_}) {
      output->copy();  // what it wrote since
      output->finish();
    }
    return true;
  }

 private:
  std::string host_;
  PrefixedOutput out_, error_;
  File orders_;
  std::optional<Child> child_;
  std::optional<ChildEnd> end_;
};

// How to start a node, also again.
struct Recipe {
  std::string host;
  std::vector<std::string> command;
  NodeStart order;
};

std::unique_ptr<Node> start_node(const Recipe& recipe) {
  auto node = std::make_unique<Node>(recipe.host, recipe.command);
  node->tell(encode(recipe.order));
  return node;
}

// Nobody told the node to end, and it ended with no error of its own.
bool is_lost(const ChildEnd& end) {
  return end.signal != 0 || end.code > 128 || end.code == static_cast<int>(ExitCode::kComm);
}

class Nodes {
 public:
  Nodes(const RemoteStartOptions& options, int max_restarts)
      : options_(options), max_restarts_(max_restarts) {}

  void start(Recipe recipe) {
    nodes_.push_back(start_node(recipe));
    recipes_.push_back(std::move(recipe));
  }

  int watch() {
    while (std::ranges::any_of(nodes_, [](const auto& node) { return node->running(); })) {
      wait_for_event();
      take_signals();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i]->look()) note_end(static_cast<int>(i), *nodes_[i]->end());
      }
      act_on_time();
    }
    return exit_code();
  }

 private:
  void wait_for_event() const {
    std::vector<pollfd> entries{{inbox_.descriptor(), POLLIN, 0}};
    for (const auto& node : nodes_) node->add_to(entries);
    auto next = std::min(kill_at_.value_or(Time::max()), end_at_.value_or(Time::max()));
    for (const auto& failure : again_) {
      next = std::min(next, failure.time + options_.root_cause_window);
    }
    const bool forever = next == Time::max();
    const auto left = std::chrono::ceil<Milliseconds>(next - Clock::now()).count();
    poll(entries.data(), entries.size(),
         forever ? -1 : static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  }

  void tell_all(const std::string& line) {
    for (const auto& node : nodes_) {
      if (node->running()) node->tell(line);
    }
  }

  void take_signals() {
    while (const auto signal = inbox_.take()) {
      if (*signal == SIGINT && ++interrupts_ > 1) {
        kill_at_ = Clock::now();
      } else if (!stop_told_) {
        stop_told_ = true;
        log_info("launch: SIG{} received: all nodes save and exit, at most two steps from here{}",
                 sigabbrev_np(*signal), *signal == SIGINT ? " (Ctrl-C again: stop at once)" : "");
        tell_all("stop");
      }
    }
  }

  void note_end(int node, ChildEnd end) {
    if (end.signal == 0 && (end.code == 0 || end.code == static_cast<int>(ExitCode::kStopped))) {
      return;
    }
    const bool unreachable = end.signal == 0 && end.code == kSshFailed;
    if (kill_told_) return;  // our doing
    if (unreachable) {
      log_error(
          "launch: ssh could not start or lost node {} on {}; `ssh {} true` must work without a "
          "question",
          node, nodes_[static_cast<size_t>(node)]->host(),
          nodes_[static_cast<size_t>(node)]->host());
      end.code = static_cast<int>(ExitCode::kComm);
    }
    const auto now = Clock::now();
    if (node != 0 && is_lost(end) && may_start_again()) {
      again_.push_back({.rank = node, .end = end, .time = now});
      return;
    }
    if (end.code > 128) end.code = static_cast<int>(ExitCode::kInternal);  // killed by a signal
    failures_.push_back({.rank = node, .end = end, .time = now});
    // Nodes that know of each other end by themselves and say why; nobody has told the others of
    // one that never came.
    const auto when = now + (unreachable ? options_.root_cause_window : options_.grace);
    kill_at_ = std::min(kill_at_.value_or(when), when);
  }

  bool may_start_again() const {
    return nodes_[0]->running() && failures_.empty() && !stop_told_ && restarts_ < max_restarts_;
  }

  // After a moment: if node 0 ends too there is nothing to join.
  void start_lost_again(Time now) {
    while (!again_.empty() && again_.front().time + options_.root_cause_window <= now) {
      const auto lost = again_.front();
      again_.erase(again_.begin());
      const auto index = static_cast<size_t>(lost.rank);
      if (may_start_again()) {
        log_warning("launch: node {} on {} was lost: starting it again ({} of {})", lost.rank,
                    recipes_[index].host, ++restarts_, max_restarts_);
        nodes_[index] = start_node(recipes_[index]);
      } else if (failures_.empty() && !stop_told_) {
        failures_.push_back(lost);
      }
    }
  }

  void act_on_time() {
    const auto now = Clock::now();
    start_lost_again(now);
    if (!kill_told_ && kill_at_ && *kill_at_ <= now) {
      kill_told_ = true;
      tell_all("kill");
      end_at_ = now + options_.grace;
      kill_at_.reset();
    }
    if (end_at_ && *end_at_ <= now) {
      end_at_.reset();
      for (const auto& node : nodes_) {
        if (node->running()) node->end_now();
      }
    }
  }

  int exit_code() const {
    if (interrupts_ > 1) return 128 + SIGINT;
    if (!failures_.empty()) {
      const auto& cause = root_cause(failures_, options_.root_cause_window);
      log_info("launch: node {} on {} failed first: {}", cause.rank,
               nodes_[static_cast<size_t>(cause.rank)]->host(), describe(cause.end));
      return cause.end.signal != 0 ? static_cast<int>(ExitCode::kInternal) : cause.end.code;
    }
    const bool stopped = std::ranges::any_of(nodes_, [](const auto& node) {
      return node->end()->code == static_cast<int>(ExitCode::kStopped);
    });
    return stopped ? static_cast<int>(ExitCode::kStopped) : 0;
  }

  const RemoteStartOptions& options_;
  const int max_restarts_;
  int restarts_ = 0;
  const SignalInbox inbox_;
  std::vector<Recipe> recipes_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Failure> failures_;  // in order of time
  std::vector<Failure> again_;     // of nodes that may be started again, likewise
  int interrupts_ = 0;
  bool stop_told_ = false, kill_told_ = false;
  std::optional<Time> kill_at_;  // when to say "kill"
  std::optional<Time> end_at_;   // when to stop waiting for an answer to it
};

// GPU numbers, when they are not simply the first ones.
std::string visible_devices(const Host& host) {
  for (size_t i = 0; i < host.slots.size(); ++i) {
    if (host.slots[i] != static_cast<int>(i)) return fmt::format("{}", fmt::join(host.slots, ","));
  }
  return {};
}

}  // namespace

std::vector<std::string> ssh_command(const std::string& host, int ssh_port,
                                     const std::string& program) {
  check_host_name(host, "hostfile");
  if (!is_plain_path(program)) {
    throw UserError(fmt::format(
        "skein lies at '{}', a path with characters that a shell could act on; starting hosts over "
        "ssh needs one of letters, digits and . _ / + - only",
        program));
  }
  std::vector<std::string> words = {find_on_path("ssh"), "-o", "BatchMode=yes"};
  if (ssh_port != 0) words.insert(words.end(), {"-p", std::to_string(ssh_port)});
  words.insert(words.end(), {"--", host, program, "remote-node"});
  return words;
}

int start_remote(const LaunchPlan& plan, const RemoteStartOptions& options) {
  const auto program = options.program.empty()
                           ? std::filesystem::read_symlink("/proc/self/exe").string()
                           : options.program;
  std::vector<std::vector<std::string>> commands;  // all of them, before anything is started
  for (const auto& host : plan.hosts) {
    commands.push_back(is_local(host.name) ? std::vector<std::string>{program, "remote-node"}
                                           : ssh_command(host.name, plan.ssh_port, program));
  }
  NodeStart order{.directory = std::filesystem::current_path().string(),
                  .secret = control::make_secret()};
  Nodes nodes(options, plan.max_restarts);
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    order.arguments = options.arguments;
    const auto flags = node_flags(plan, static_cast<int>(i));
    order.arguments.insert(order.arguments.end(), flags.begin(), flags.end());
    order.variables = options.variables;
    order.variables.erase("CUDA_VISIBLE_DEVICES");  // of this machine
    if (const auto devices = visible_devices(plan.hosts[i]); !devices.empty()) {
      order.variables["CUDA_VISIBLE_DEVICES"] = devices;
    }
    nodes.start({.host = plan.hosts[i].name, .command = commands[i], .order = order});
  }
  return nodes.watch();
}

}  // namespace skein::launch
