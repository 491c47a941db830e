// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kDone = static_cast<int>(ExitCode::kDone);
constexpr int kUser = static_cast<int>(ExitCode::kUser);
constexpr int kComm = static_cast<int>(ExitCode::kComm);
constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kInterrupted = 128 + SIGINT;
constexpr milliseconds kLookEvery{250};
// How long a node whose connection was closed may take to connect again.
constexpr milliseconds kReturn{1000};
// Decisions are asked for ten times a second: after a longer gap this process did not run.
constexpr milliseconds kPause{1000};

// Codes that are not ours (127: a library is missing) say nothing to who reads ours.
int code_of(const ChildEnd& end) {
  constexpr int kOurs[] = {kDone, kUser, kComm, static_cast<int>(ExitCode::kIo), kStopped};
  const bool is_ours = end.signal == 0 && std::ranges::count(kOurs, end.code) > 0;
  return is_ours ? end.code : static_cast<int>(ExitCode::kInternal);
}

bool ended_well(const ChildEnd& end) {
  return end.signal == 0 && (end.code == kDone || end.code == kStopped);
}

// Batch systems send them to all processes of a job at once.
bool died_of_stop_signal(const ChildEnd& end) {
  return end.signal == SIGTERM || end.signal == SIGUSR1 || end.signal == SIGINT ||
         end.signal == SIGHUP;
}

// And may start again with less.
bool ran_out_of_memory(const RankStatus& rank) {
  const auto& board = rank.view.board;
  const bool killed = rank.oom_counted && rank.end && rank.end->signal == SIGKILL;
  return (board.out_of_memory || killed) && board::can_start_with_less(board);
}

bool heals(int code) {
  return code != kDone && code != kUser && code != kStopped && code != kInterrupted;
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, Time now)
    : options_(options), nodes_(static_cast<size_t>(options.nodes)), started_(now), decided_(now) {}

void Coordinator::take(const NodeStatus& status, Time when) {
  if (status.node < 0 || status.node >= options_.nodes) return;
  auto& node = nodes_[static_cast<size_t>(status.node)];
  if (node.lost) return;  // it was declared lost, and its ranks with it
  node.heard = when;
  node.closed = false;
  if (node.refused) return;
  node.status = status;
  if (status.identity) node.identity = status.identity;
}

void Coordinator::note_admitted(int node, Time when) {
  if (node <= 0 || node >= options_.nodes) return;
  nodes_[static_cast<size_t>(node)] = Node{.heard = when, .late = state_ != State::kJoining};
}

void Coordinator::note_closed(int node, Time when) {
  if (node <= 0 || node >= options_.nodes) return;
  auto& entry = nodes_[static_cast<size_t>(node)];
  if (when >= entry.heard) entry.closed = true;
}

// While this process was stopped, or its machine paused, nobody could be heard.
void Coordinator::forgive_pause(Time now) {
  const auto gap = now - std::exchange(decided_, now);
  if (gap < kPause) return;
  for (auto& node : nodes_) node.heard = std::min(now, node.heard + gap);
}

const NodeCommand& Coordinator::decide(Time now) {
  forgive_pause(now);
  switch (state_) {
    case State::kJoining:
      join(now);
      break;
    case State::kRunning:
      watch(now);
      break;
    case State::kEnding:
      finish_ending(now);
      break;
    case State::kOver:
      break;
  }
  return command_;
}

template <typename Visit>
void Coordinator::each_rank(const Visit& visit) const {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    const auto& status = nodes_[node].status;
    if (!status || status->generation != command_.generation) continue;
    for (const auto& rank : status->ranks) visit(static_cast<int>(node), rank);
  }
}

std::string Coordinator::name_of_node(int node) const {
  const auto& status = nodes_[static_cast<size_t>(node)].status;
  return status ? fmt::format("node {} ({})", node, status->host) : fmt::format("node {}", node);
}

std::vector<int> Coordinator::missing_nodes() const {
  std::vector<int> missing;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].status) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

std::vector<int> Coordinator::lost_nodes() const {
  std::vector<int> lost;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].lost) lost.push_back(static_cast<int>(i));
  }
  return lost;
}

bool Coordinator::all_have_left() const {
  return std::all_of(nodes_.begin() + 1, nodes_.end(), [](const Node& node) {
    return !node.status || node.lost || node.closed || node.status->leaving;
  });
}

void Coordinator::join(Time now) {
  refuse_newcomers(now);
  if (end_if_contradictory(now) || end_if_lost(now) || end_if_asked(now)) return;
  if (const auto missing = missing_nodes(); !missing.empty()) {
    if (now < started_ + options_.join_timeout) return;
    end({.code = kComm,
         .message =
             fmt::format("node {} has not joined within {} s: start the same command there (if it "
                         "runs: is output_dir one folder for all nodes, or the --secret-file the "
                         "same?)",
                         fmt::join(missing, ", "),
                         std::chrono::duration_cast<seconds>(options_.join_timeout).count())},
        /*at_once=*/false, now);
    return;
  }
  if (options_.nodes > 1) {
    std::vector<NodeIdentity> identities;
    for (const auto& node : nodes_) {
      if (!node.identity) return;  // it still prepares its data
      identities.push_back(*node.identity);
    }
    if (const auto difference = find_difference(identities, options_.needs_shared_output)) {
      end({.code = kUser, .message = *difference}, /*at_once=*/false, now);
      return;
    }
  }
  begin_generation();
}

// A run that has begun is not lost to a wrong command on one machine: the right one may follow.
void Coordinator::refuse_newcomers(Time now) {
  if (!nodes_[0].settled) return;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    auto& node = nodes_[i];
    const int number = static_cast<int>(i);
    if (node.refused && (node.closed || now > node.heard + options_.node_silence)) {
      node = Node{.lost = true};
      command_.refused.erase(number);
    }
    if (node.settled) continue;
    if (const auto objection = objection_to(i)) {
      node = Node{.heard = node.heard, .closed = node.closed, .refused = true};
      command_.refused[number] = *objection;
    }
  }
}

// Why a node that has come back cannot go on with node 0.
std::optional<std::string> Coordinator::objection_to(size_t node) const {
  const auto& status = nodes_[node].status;
  const auto& identity = nodes_[node].identity;
  if (!status) return std::nullopt;
  if (!status->problem.empty()) {
    return fmt::format("{}: {}", name_of_node(static_cast<int>(node)), status->problem);
  }
  if (auto contradiction = contradiction_of(node)) return contradiction;
  if (!identity || !nodes_[0].identity) return std::nullopt;  // it still prepares its data
  const NodeIdentity both[] = {*nodes_[0].identity, *identity};
  return find_difference(both, options_.needs_shared_output);
}

std::optional<std::string> Coordinator::contradiction_of(size_t node) const {
  const auto& status = nodes_[node].status;
  if (!status || status->nodes == options_.nodes) return std::nullopt;
  return fmt::format("{} was told of {} nodes, node 0 of {}: give all the same --nnodes",
                     name_of_node(static_cast<int>(node)), status->nodes, options_.nodes);
}

bool Coordinator::end_if_contradictory(Time now) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto contradiction = contradiction_of(i);
    if (!contradiction) continue;
    end({.code = kUser, .message = *contradiction}, /*at_once=*/false, now);
    return true;
  }
  return false;
}

void Coordinator::begin_generation() {
  command_.order = Order::kRun;
  command_.first_ranks = {0};
  for (auto& node : nodes_) {
    command_.first_ranks.push_back(command_.first_ranks.back() + node.status->local_ranks);
    node.settled = true;
  }
  state_ = State::kRunning;
}

void Coordinator::watch(Time now) {
  if (end_if_lost(now) || end_if_asked(now)) return;
  if (end_if_failed(now) || end_if_stuck(now)) return;
  end_if_done(now);
}

bool Coordinator::is_suspect(const Node& node, Time now) const {
  return node.closed || now > node.heard + options_.node_silence / 2;
}

bool Coordinator::end_if_lost(Time now) {
  for (size_t i = 1; i < nodes_.size(); ++i) {
    auto& node = nodes_[i];
    if (node.late) {
      end({.code = kComm,
           .message = fmt::format("{} was started again while its ranks ran",
                                  name_of_node(static_cast<int>(i))),
           .can_restart = !stop_since_},
          /*at_once=*/true, now);
      return true;
    }
    if (!node.status || node.lost) continue;
    const auto patience =
        node.closed ? std::min(kReturn, options_.node_silence) : options_.node_silence;
    if (now <= node.heard + patience) continue;
    node.lost = true;
    const auto silence = std::chrono::duration<double>(now - node.heard).count();
    end({.code = kComm,
         .message = fmt::format("{} has not been heard for {:.1f} s: its launcher (pid {}) {}",
                                name_of_node(static_cast<int>(i)), silence, node.status->pid,
                                node.closed ? "ended and closed its connection"
                                            : "hangs, or the network between is down"),
         .can_restart = !stop_since_},
        /*at_once=*/true, now);
    return true;
  }
  return false;
}

bool Coordinator::end_if_asked(Time now) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto& status = nodes_[i].status;
    if (!status) continue;
    if (!status->problem.empty()) {
      const bool here = i == 0;
      end({.code = status->problem_code,
           .message =
               here ? status->problem : name_of_node(static_cast<int>(i)) + ": " + status->problem},
          /*at_once=*/true, now);
      return true;
    }
    if (status->interrupted) {
      end({.code = kInterrupted,
           .message = "interrupted twice: all ranks were killed, nothing more was saved"},
          /*at_once=*/true, now);
      return true;
    }
    if (status->stop_signal == 0) continue;
    if (state_ == State::kJoining) {
      end({.code = kStopped,
           .message = command_.generation == 0 ? "stopped before the ranks were started"
                                               : "stopped while a lost node was waited for"},
          /*at_once=*/false, now);
      return true;
    }
    command_.stop = true;
    if (!stop_since_) stop_since_ = now;
  }
  return false;
}

std::vector<Coordinator::Found> Coordinator::failures(Time now) const {
  std::vector<Found> found;
  each_rank([&](int node, const RankStatus& rank) {
    if (!rank.end || is_stop(rank) || ended_well(*rank.end)) return;
    const auto& heard = nodes_[static_cast<size_t>(node)].heard;
    const auto since = node == 0 ? now : heard;
    found.push_back({.failure = {.rank = rank.view.board.rank,
                                 .end = *rank.end,
                                 .time = since - milliseconds(rank.end_ms)},
                     .node = node,
                     .rank = &rank});
  });
  std::stable_sort(found.begin(), found.end(), [](const Found& left, const Found& right) {
    return left.failure.time < right.failure.time;
  });
  return found;
}

// It died of a request to stop, sent by its launcher or by whoever asked the launcher too.
bool Coordinator::is_stop(const RankStatus& rank) const {
  return rank.ours || (stop_since_ && rank.end && died_of_stop_signal(*rank.end));
}

bool Coordinator::end_if_failed(Time now) {
  bool died_of_stop = false;
  each_rank([&](int, const RankStatus& rank) { died_of_stop |= is_stop(rank); });
  const auto found = failures(now);
  const bool only_symptoms = std::all_of(found.begin(), found.end(), [](const Found& one) {
    return is_communication_error(one.failure.end);
  });
  if (died_of_stop && only_symptoms) {
    end({.code = kStopped,
         .message = options_.saves
                        ? "stopped before all ranks could save; the same command continues the run"
                        : "stopped before the end"},
        /*at_once=*/false, now);
    return true;
  }
  if (found.empty()) return false;
  std::vector<Failure> in_order;
  for (const auto& one : found) in_order.push_back(one.failure);
  const auto& cause = root_cause(in_order, options_.root_cause_window);
  if (is_communication_error(cause.end) || died_of_stop_signal(cause.end)) {
    // A rank that lost its peer may be quicker to exit than the peer is to crash, or than its node
    // is to be missed; one that was asked to stop may die sooner than its launcher is asked: wait
    // for the cause.
    if (now < in_order.front().time + options_.root_cause_window) return false;
    for (size_t i = 1; i < nodes_.size(); ++i) {
      if (is_suspect(nodes_[i], now)) return false;
    }
  }
  const auto blamed = std::find_if(
      found.begin(), found.end(), [&](const Found& one) { return one.failure.rank == cause.rank; });
  end(outcome_of(*blamed), /*at_once=*/false, now);
  return true;
}

std::vector<RankView> Coordinator::views() const {
  std::vector<RankView> views;
  each_rank([&](int, const RankStatus& rank) { views.push_back(rank.view); });
  return views;
}

bool Coordinator::end_if_stuck(Time now) {
  if (!all_started() || !failures(now).empty()) return false;
  const auto seen = views();
  const auto ends = static_cast<size_t>(
      std::count_if(seen.begin(), seen.end(), [](const RankView& view) { return view.ended; }));
  if (now < looked_ + kLookEvery && ends == ends_at_look_) return false;
  looked_ = now;
  ends_at_look_ = ends;
  auto verdict = diagnose(seen, options_.limits);
  if (!verdict) verdict = find_unstoppable(seen, now);
  const auto before = std::exchange(suspicion_, verdict);
  if (!verdict || !before || before->rank != verdict->rank) return false;
  end(outcome_of(*verdict), /*at_once=*/true, now);
  return true;
}

// After a request to stop, ranks that make no progress are not waited for.
std::optional<Verdict> Coordinator::find_unstoppable(const std::vector<RankView>& seen,
                                                     Time now) const {
  const auto grace = options_.stop_grace;
  if (!stop_since_ || now < *stop_since_ + grace) return std::nullopt;
  const RankView* slowest = nullptr;
  for (const auto& view : seen) {
    if (view.ended) continue;
    if (view.board.progress_ms < grace.count()) return std::nullopt;
    if (slowest == nullptr || view.board.progress_ms > slowest->board.progress_ms) slowest = &view;
  }
  if (slowest == nullptr) return std::nullopt;
  auto limits = options_.limits;
  limits.collective = limits.first_step = limits.join = grace;
  limits.heartbeat = std::min(limits.heartbeat, grace);
  limits.key = "stop_grace";
  if (auto verdict = diagnose(seen, limits)) return verdict;
  return Verdict{
      .trouble = Trouble::kLate,
      .rank = slowest->board.rank,
      .text = fmt::format("rank {} on {} did not stop when asked: no progress for {:.1f} s ({})",
                          slowest->board.rank, slowest->host,
                          static_cast<double>(slowest->board.progress_ms) / 1000,
                          name_of(slowest->board.phase))};
}

bool Coordinator::end_if_done(Time now) {
  if (!all_started() || !all_ended() || !failures(now).empty()) return false;
  bool stopped = false;
  each_rank([&](int, const RankStatus& rank) { stopped |= rank.end->code == kStopped; });
  state_ = State::kOver;
  outcome_ = Outcome{.code = stopped ? kStopped : kDone};
  return true;
}

bool Coordinator::all_started() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return node.status && node.status->generation == command_.generation &&
           static_cast<int>(node.status->ranks.size()) == node.status->local_ranks;
  });
}

bool Coordinator::all_ended() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    if (!node.status || node.lost || node.late) return true;
    const auto& ranks = node.status->ranks;
    return node.status->generation == command_.generation &&
           std::all_of(ranks.begin(), ranks.end(),
                       [](const RankStatus& rank) { return rank.end.has_value(); });
  });
}

void Coordinator::end(Outcome outcome, bool at_once, Time now) {
  ending_ = std::move(outcome);
  if (state_ == State::kJoining) {
    state_ = State::kOver;
    outcome_ = ending_;
    return;
  }
  state_ = State::kEnding;
  ending_since_ = now;
  command_.order = Order::kEnd;
  command_.at_once = at_once;
}

// A process that does not go away after SIGKILL hangs in the kernel.
std::string Coordinator::name_remaining() const {
  std::string text;
  each_rank([&](int, const RankStatus& rank) {
    if (rank.end) return;
    text += fmt::format("{}rank {} on {} (pid {}, state {}, {})", text.empty() ? "" : "\n",
                        rank.view.board.rank, rank.view.host, rank.pid, rank.view.process_state,
                        meaning_of_state(rank.view.process_state));
  });
  if (text.empty()) return text;
  return fmt::format("{}\ndid not end within {} s; output_dir stays in use until it does", text,
                     std::chrono::duration_cast<seconds>(options_.longest_end).count());
}

void Coordinator::finish_ending(Time now) {
  const bool is_over = now >= ending_since_ + options_.longest_end;
  if (is_over) ending_.remains = name_remaining();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    auto& node = nodes_[i];
    if (node.status && node.status->interrupted) command_.at_once = true;
    const bool silent = i > 0 && now > node.heard + options_.node_silence;
    if (!silent && !is_over) continue;
    if (node.late) continue;  // it may still be starting, and has no ranks
    node.lost = true;
    if (!silent) ending_.can_restart = false;  // its ranks cannot be ended
  }
  if (!all_ended()) return;
  state_ = State::kOver;
  outcome_ = ending_;
}

Outcome Coordinator::outcome_of(const Found& found) const {
  // Whoever asked for the stop starts it again, which goes on with less.
  const bool is_short = ran_out_of_memory(*found.rank);
  if (is_short && stop_since_) {
    return {.code = kStopped,
            .message = fmt::format("stopped before the first update, in which rank {} ran out of "
                                   "memory: start again to try with less",
                                   found.failure.rank)};
  }
  const int code = code_of(found.failure.end);
  return {.code = code,
          .failure = describe_rank(found.failure.rank),
          .node = found.node,
          .can_restart = heals(code) && !stop_since_,
          .out_of_memory = is_short};
}

Outcome Coordinator::outcome_of(const Verdict& verdict) const {
  auto report = describe_rank(verdict.rank);
  report.verdict = verdict;
  report.last_calls.clear();  // the verdict names them
  return {.code = kComm, .failure = std::move(report), .can_restart = !stop_since_};
}

FailureReport Coordinator::describe_rank(int rank) const {
  FailureReport report;
  report.rank = rank;
  report.size = command_.first_ranks.back();
  each_rank([&](int, const RankStatus& one) {
    if (one.view.board.rank != rank) return;
    report.host = one.view.host;
    report.pid = one.pid;
    report.end = one.end.value_or(ChildEnd{});
    report.oom_counted = one.oom_counted;
    report.message = one.view.board.message;
    report.board = one.view.board;
    report.logs = one.logs;
  });
  report.last_calls = last_calls(views(), rank);
  return report;
}

void Coordinator::restart() {
  bool training = false;
  each_rank([&](int, const RankStatus& rank) {
    training |= rank.view.board.step > 0 || rank.view.board.phase > board::Phase::kLoading;
  });
  bool same_nodes = true;
  for (auto& node : nodes_) {
    same_nodes &= !node.lost && !node.late;
    if (node.lost) node = Node{};
    node.late = false;
  }
  command_.order = same_nodes ? Order::kRun : Order::kWait;
  command_.continues |= training;
  command_.at_once = false;
  ++command_.generation;
  ends_at_look_ = 0;
  suspicion_.reset();
  outcome_.reset();
  state_ = same_nodes ? State::kRunning : State::kJoining;
  started_ = decided_;
}

void Coordinator::quit(int code, const std::string& message) {
  command_.order = Order::kQuit;
  command_.code = code;
  command_.message = message;
  state_ = State::kOver;
}

}  // namespace skein::launch
