// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/child.h"
#include "skein/launch/detect.h"
#include "skein/launch/rank_environment.h"
#include "skein/launch/root_cause.h"
#include "skein/launch/socket.h"
#include "skein/launch/store_server.h"

namespace skein::launch {
namespace {

constexpr int kStoppedCode = static_cast<int>(ExitCode::kStopped);

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

// Receives the signals that ask for a stop, and gives the old mask back.
class SignalInbox {
 public:
  SignalInbox() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&wanted, signal);
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    file_ = File(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!file_) throw_errno("cannot receive signals");
  }
  SignalInbox(const SignalInbox&) = delete;
  ~SignalInbox() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  int descriptor() const { return file_.descriptor(); }
  std::optional<int> take() const {
    signalfd_siginfo info{};
    if (read(file_.descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  File file_;
};

// The ranks of this machine from start to the last one's end.
class Ranks {
 public:
  Ranks(const LaunchOptions& options, const SignalInbox& inbox)
      : options_(options), inbox_(inbox) {}

  void start(const ChildCommand& command) { ranks_.push_back({.child = Child(command)}); }
  int watch();  // returns the exit code

 private:
  struct Rank {
    Child child;
    std::optional<ChildEnd> end;
  };

  bool any_running() const;
  void wait_for_event();
  void take_signals();
  void take_ends();
  void note_end(int rank, const ChildEnd& end);
  void act_on_time();
  Deadline next_deadline() const;
  int exit_code() const;
  void report() const;
  void report_failure(const Failure& cause) const;

  const LaunchOptions& options_;
  const SignalInbox& inbox_;
  std::vector<Rank> ranks_;
  std::vector<Failure> failures_;  // in order of time
  int interrupts_ = 0;
  bool stop_forwarded_ = false;
  bool stopped_early_ = false;       // a rank died of the forwarded signal
  bool ending_ = false;              // SIGTERM was sent because of a failure
  bool killed_ = false;              // SIGKILL was sent
  std::optional<Deadline> end_at_;   // when to send SIGTERM
  std::optional<Deadline> kill_at_;  // when to send SIGKILL
};

int Ranks::watch() {
  while (any_running()) {
    wait_for_event();
    take_signals();
    take_ends();
    act_on_time();
  }
  report();
  return exit_code();
}

bool Ranks::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.end; });
}

Deadline Ranks::next_deadline() const {
  if (killed_) return Deadline::max();
  return std::min(ending_ ? Deadline::max() : end_at_.value_or(Deadline::max()),
                  kill_at_.value_or(Deadline::max()));
}

void Ranks::wait_for_event() {
  std::vector<pollfd> entries{{inbox_.descriptor(), POLLIN, 0}};
  for (const auto& rank : ranks_) {
    if (!rank.end) entries.push_back({rank.child.descriptor(), POLLIN, 0});
  }
  const auto next = next_deadline();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  const bool forever = next == Deadline::max();
  poll(entries.data(), entries.size(),
       forever ? -1 : static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
}

void Ranks::take_signals() {
  while (const auto signal = inbox_.take()) {
    if (*signal == SIGINT && ++interrupts_ > 1) {
      kill_at_ = Clock::now();
      continue;
    }
    if (stop_forwarded_ || ending_) continue;
    stop_forwarded_ = true;
    log_info("launch: SIG{} received: the ranks finish this step, save and exit{}",
             sigabbrev_np(*signal), *signal == SIGINT ? " (Ctrl-C again: stop at once)" : "");
    for (const auto& rank : ranks_) rank.child.send(SIGTERM);
  }
}

void Ranks::take_ends() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].end) continue;
    const auto end = ranks_[i].child.reap();
    if (!end) continue;
    ranks_[i].end = end;
    note_end(static_cast<int>(i), *end);
  }
}

void Ranks::note_end(int rank, const ChildEnd& end) {
  if (end.signal == 0 && (end.code == 0 || end.code == kStoppedCode)) return;
  const bool ours =
      (end.signal == SIGTERM && (ending_ || stop_forwarded_)) || (end.signal == SIGKILL && killed_);
  const auto now = Clock::now();
  if (!ours) {
    failures_.push_back({.rank = rank, .end = end, .time = now});
  } else if (stop_forwarded_) {
    stopped_early_ = true;
  }
  // A rank that lost its peer may be quicker to exit than the peer is to crash: wait for the cause.
  const bool symptom = !ours && is_communication_error(end);
  const auto when = symptom ? now + options_.root_cause_window : now;
  end_at_ = std::min(end_at_.value_or(when), when);
}

void Ranks::act_on_time() {
  const auto now = Clock::now();
  if (!ending_ && end_at_ && *end_at_ <= now) {
    ending_ = true;
    kill_at_ = std::min(kill_at_.value_or(Deadline::max()), now + options_.grace);
    for (const auto& rank : ranks_) rank.child.send(SIGTERM);
  }
  if (!killed_ && kill_at_ && *kill_at_ <= now) {
    killed_ = true;
    for (const auto& rank : ranks_) rank.child.kill_group();
  }
}

int Ranks::exit_code() const {
  if (interrupts_ > 1) return 128 + SIGINT;
  if (!failures_.empty()) {
    const auto& end = root_cause(failures_, options_.root_cause_window).end;
    return end.signal != 0 ? static_cast<int>(ExitCode::kInternal) : end.code;
  }
  const bool stopped = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.end && rank.end->code == kStoppedCode;
  });
  return stopped || stopped_early_ ? kStoppedCode : 0;
}

// A rank that ends with an error of its own has told it; one that was killed, or that lost a peer,
// has not told the cause. So every failed run has one error on stderr.
void Ranks::report_failure(const Failure& cause) const {
  if (cause.end.signal == 0 && cause.end.code == static_cast<int>(ExitCode::kUser)) return;
  const bool untold = cause.end.signal != 0 || is_communication_error(cause.end);
  log_line(untold ? LogLevel::kError : LogLevel::kInfo,
           fmt::format("launch: rank {} of {} on {} failed first: {}{}{}", cause.rank,
                       ranks_.size(), host_name(), describe(cause.end),
                       cause.end.signal == SIGKILL ? " (probably out of memory)" : "",
                       ranks_.size() > 1 ? "; the other ranks were ended" : ""));
}

void Ranks::report() const {
  if (interrupts_ > 1) {
    log_error("launch: interrupted twice: all ranks were killed, nothing more was saved");
  } else if (!failures_.empty()) {
    report_failure(root_cause(failures_, options_.root_cause_window));
  } else if (stopped_early_) {
    log_warning("launch: stopped before all ranks could save; the same command continues the run");
  }
}

// What every rank gets besides its own numbers; what the user has set stays.
void add_thread_settings(const LaunchPlan& plan, Environment& environment) {
  environment["OMP_NUM_THREADS"] = plan.omp_num_threads;
  environment.emplace("MKL_DYNAMIC", "FALSE");  // a thread count that varies varies the sums
  environment.emplace("MKL_CBWR", "AUTO");      // same bits for any alignment of the buffers
}

ChildCommand rank_command(const std::vector<std::string>& arguments, const RankEnvironment& rank,
                          Environment environment, int secret) {
  for (const auto& [name, value] : to_environment(rank, secret)) environment[name] = value;
  ChildCommand command{.arguments = arguments, .environment = {}, .inherited = secret};
  for (const auto& [name, value] : environment) command.environment.push_back(name + "=" + value);
  return command;
}

}  // namespace

int launch(const LaunchPlan& plan, const std::vector<std::string>& arguments,
           const LaunchOptions& options) {
  // First: the store's thread inherits the mask, so that signals come to the inbox alone.
  const SignalInbox inbox;
  const auto secret = make_secret();
  const auto shared_secret = share_secret(secret);
  RankEnvironment rank{.size = plan.local_ranks,
                       .local_size = plan.local_ranks,
                       .device = plan.device,
                       .generation = options.generation};
  const StoreServer store(secret, {.host = rank.store_host,
                                   .size = static_cast<uint32_t>(rank.size),
                                   .generation = options.generation});
  rank.store_port = store.port();
  auto environment = read_environment();
  add_thread_settings(plan, environment);
  Ranks ranks(options, inbox);
  for (rank.rank = 0; rank.rank < rank.size; ++rank.rank) {
    rank.local_rank = rank.rank;
    ranks.start(rank_command(arguments, rank, environment, shared_secret.descriptor()));
  }
  return ranks.watch();
}

}  // namespace skein::launch
