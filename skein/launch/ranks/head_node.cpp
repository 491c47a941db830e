// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/head_node.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/process/slow_disk.h"
#include "skein/launch/ranks/node_link.h"
#include "skein/launch/ranks/outputs.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kNameMissingEvery{10};
constexpr milliseconds kFarewell{3000};
constexpr seconds kDiskPatience{5};
constexpr int kTooOften = 3;

CoordinatorOptions coordinator_options(const LaunchPlan& plan, const LaunchOptions& options) {
  return {.nodes = plan.nodes,
          .root_cause_window = options.root_cause_window,
          .stop_grace = options.stop_grace,
          .join_timeout = options.join_timeout,
          .node_silence = options.node_silence,
          .longest_end = options.longest_end,
          .limits = options.limits,
          .needs_shared_output = options.needs_shared_output,
          .saves = !options.output.empty()};
}

// A rank that ended with an error of its own has told it; one that was killed or ended by us, or
// that lost a peer, has not told the cause. So every failed run has one error on stderr.
bool is_untold(const FailureReport& report) {
  return report.verdict || report.end.signal != 0 || is_communication_error(report.end);
}

// For the report, which a disk that cannot be read, or does not answer, does not prevent.
std::string what_is_saved(const LaunchOptions& options) try {
  if (!options.saved) return "";
  const auto checkpoint = try_for(kDiskPatience, options.saved);
  if (!checkpoint) return "unknown: the disk does not answer";
  return *checkpoint ? shorter_path(**checkpoint) : "";
} catch (const std::exception& error) {
  return fmt::format("unknown: {}", error.what());
}

// How often that step has failed in a row; once, where the disk does not answer.
int count_failure(const fs::path& output, const board::BoardView& board) {
  const auto count = [output, step = board.step, samples = board.samples] {
    return FailureCount(output).add(step, samples);
  };
  return try_for(kDiskPatience, count).value_or(1);
}

void forget_failures(const fs::path& output) {
  try_for(kDiskPatience, [output] {
    FailureCount(output).clear();
    return true;
  });
}

// The end of a report on a failure that was no rank's.
std::string continuation(const LaunchOptions& options) {
  std::string text;
  const auto saved = what_is_saved(options);
  if (!saved.empty()) text += fmt::format("\n  {:<14}{}", "saved", saved);
  if (!options.command.empty()) text += fmt::format("\n  {:<14}{}", "to continue", options.command);
  return text;
}

// What the run gives up next; empty: nothing is left, or it cannot be told.
std::string lower(const LaunchOptions::Ladder& ladder, const std::string& given_up) try {
  return ladder.lower(given_up);
} catch (const std::exception& error) {
  log_warning("launch: {}", error.what());
  return "";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

HeadNode::HeadNode(const LaunchPlan& plan, const LaunchOptions& options,
                   const control::Secret& secret, const std::string& token)
    : plan_(plan),
      options_(options),
      secret_(control::secret_of_run(secret, token)),
      host_(plan.nodes > 1 ? plan.master_addr : "127.0.0.1"),
      token_(token),
      coordinator_(coordinator_options(plan, options), Clock::now()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      waiting_since_(Clock::now()),
      named_missing_(waiting_since_) {
  if (!wake_) throw_errno("cannot create an eventfd");
  if (options.ladder) given_up_ = options.ladder->given_up;
  coordinator_.give_up(given_up_);
  server_ = std::make_unique<control::StoreServer>(
      secret_,
      control::StoreServerOptions{
          .host = host_,
          .port = plan.nodes > 1 ? plan.master_port : 0,
          .size = 0,
          .nodes = static_cast<uint32_t>(plan.nodes > 1 ? plan.nodes : 0),
          .guest_secret = secret,
          .token = token,
          .on_node_admitted = [this](int node, uint64_t admission) { admit(node, admission); },
          .on_node_set = [this](int node, const std::string& key,
                                const std::string& value) { hear(node, key, value); },
          .on_node_closed = [this](int node) { note_closed(node); }});
}

HeadNode::~HeadNode() {
  server_.reset();
}  // first: the store's thread calls hear() and note_closed()

void HeadNode::admit(int node, uint64_t admission) {
  const std::lock_guard lock(mutex_);
  heard_[node] = {.admission = admission, .status = {}, .when = Clock::now()};
  eventfd_write(wake_.descriptor(), 1);
}

void HeadNode::hear(int node, const std::string& key, const std::string& value) {
  if (key != status_key(node)) return;
  const std::lock_guard lock(mutex_);
  auto& heard = heard_[node];
  heard = {.admission = heard.admission, .status = value, .when = Clock::now()};
  eventfd_write(wake_.descriptor(), 1);
}

void HeadNode::note_closed(int node) {
  const std::lock_guard lock(mutex_);
  heard_[node].closed = true;
  heard_[node].when = Clock::now();
  eventfd_write(wake_.descriptor(), 1);
}

void HeadNode::report(const NodeStatus& status) { coordinator_.take(status, Clock::now()); }

void HeadNode::take_heard() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.descriptor(), &ignored);
  std::map<int, Heard> heard;
  {
    const std::lock_guard lock(mutex_);
    heard.swap(heard_);
  }
  for (const auto& [node, news] : heard) {
    if (news.admission != 0) {
      admissions_[node] = news.admission;
      coordinator_.note_admitted(node, news.when);
    }
    if (const auto status = decode_status(news.status); status && status->node == node) {
      coordinator_.take(*status, news.when);
    }
    if (news.closed) coordinator_.note_closed(node, news.when);
  }
}

NodeCommand HeadNode::command() {
  take_heard();
  const auto now = Clock::now();
  const auto& command = coordinator_.decide(now);
  expel_lost_nodes();
  if (coordinator_.outcome() && command.order != Order::kQuit) {
    resolve(*coordinator_.outcome());
  }
  if (coordinator_.joining()) name_missing_nodes(now);
  if (command != published_) publish(command);
  return command;
}

// Whoever starts a lost node again finds its place free, and the lost one can do no more harm.
void HeadNode::expel_lost_nodes() {
  for (const int node : coordinator_.lost_nodes()) {
    const auto found = admissions_.find(node);
    if (found == admissions_.end()) continue;
    server_->expel_node(node, found->second);
    admissions_.erase(found);
  }
}

void HeadNode::name_missing_nodes(Time now) {
  if (now < named_missing_ + kNameMissingEvery) return;
  named_missing_ = now;
  const auto missing = coordinator_.missing_nodes();
  const auto waited = std::chrono::duration_cast<seconds>(now - waiting_since_).count();
  if (missing.empty()) {
    log_info("launch: all {} nodes are here; waiting for their data ({} s)", plan_.nodes, waited);
  } else {
    log_info("launch: waiting for node {} of {} nodes to join {} port {} ({} s of {} s)",
             fmt::join(missing, ", "), plan_.nodes, host_, port(), waited,
             options_.join_timeout / seconds(1));
  }
}

void HeadNode::publish(const NodeCommand& command) {
  const bool new_ranks =
      command.order == Order::kRun &&
      (published_.order != Order::kRun || published_.generation != command.generation);
  if (new_ranks) {
    server_->begin_generation(command.generation,
                              static_cast<uint32_t>(command.first_ranks.back()));
  }
  for (const auto& [node, why] : command.refused) {
    if (published_.refused.contains(node)) continue;
    log_warning("launch: {}\n  {:<14}node {} was sent away; the others wait on for the right one",
                why, "then", node);
  }
  published_ = command;
  server_->set(command_key(++serial_), encode(command));
  server_->set(kNewestCommandKey, std::to_string(serial_));
}

void HeadNode::resolve(const Outcome& outcome) {
  if (outcome.out_of_memory && go_on_with_less(*outcome.failure)) return;
  if (outcome.failure) return resolve_failure(outcome);
  if (outcome.can_restart && restarts_ < plan_.max_restarts) return await_lost_nodes(outcome);
  const bool done = outcome.code == static_cast<int>(ExitCode::kDone);
  const bool stopped = outcome.code == static_cast<int>(ExitCode::kStopped);
  if ((done || stopped) && !options_.output.empty()) forget_failures(options_.output);
  auto text = outcome.message;
  if (outcome.code == static_cast<int>(ExitCode::kComm)) {
    text += continuation(options_);
    write_error_file(text);
  }
  if (!outcome.remains.empty()) text += fmt::format("\nremains: {}", outcome.remains);
  if (!text.empty()) {
    log_line(stopped ? LogLevel::kWarning : LogLevel::kError, "launch: " + text);
  }
  coordinator_.quit(outcome.code, outcome.message);
}

bool HeadNode::go_on_with_less(const FailureReport& failure) {
  if (!options_.ladder) return false;
  const auto words = lower(*options_.ladder, given_up_);
  const auto who = fmt::format("launch: rank {} of {} ran out of memory in its first update",
                               failure.rank, failure.size);
  if (words.empty()) {
    log_error(
        "{}, and nothing is left to give up: shorter rows (block_size), "
        "finetuning_type=lora, more ranks, or more memory ({})",
        who, first_line(failure.message));
    return false;
  }
  log_warning("{} ({}): starting again with {}", who, first_line(failure.message), words);
  given_up_ = words;
  coordinator_.give_up(words);
  begin_again();
  return true;
}

void HeadNode::await_lost_nodes(const Outcome& outcome) {
  log_warning(
      "launch: {}\n  {:<14}restarting ({} of {}) once all nodes are here: start the same command "
      "there within {} s",
      outcome.message, "then", ++restarts_, plan_.max_restarts, options_.join_timeout / seconds(1));
  begin_again();
}

void HeadNode::begin_again() {
  waiting_since_ = named_missing_ = Clock::now();
  coordinator_.restart();
}

HeadNode::Next HeadNode::after_failure(const Outcome& outcome) {
  const auto& board = outcome.failure->board;
  Next ended{.text = outcome.failure->size > 1 ? "the other ranks were ended" : ""};
  if (!outcome.can_restart) return ended;
  const bool none_left = restarts_ == plan_.max_restarts;
  // A failure before the first step, or of the disk, says nothing about its samples.
  const bool in_step =
      board.phase > board::Phase::kLoading && outcome.code != static_cast<int>(ExitCode::kIo);
  if (in_step && !options_.output.empty()) {
    const int times = count_failure(options_.output, board);
    if (times >= kTooOften) {
      const auto samples = board.samples.empty()
                               ? ""
                               : fmt::format("; its samples: {}", fmt::join(board.samples, ", "));
      return {.text = fmt::format("step {} has failed {} times in a row{}{}", board.step + 1, times,
                                  none_left ? "" : ": not restarted", samples)};
    }
  }
  if (none_left) return ended;
  return {.restart = true,
          .text = fmt::format("restarting ({} of {})", ++restarts_, plan_.max_restarts)};
}

void HeadNode::resolve_failure(const Outcome& outcome) {
  auto report = *outcome.failure;
  const auto [restart, decision] = after_failure(outcome);
  report.decision = decision;
  report.remains = outcome.remains;
  if (!restart) report.command = options_.command;
  report.saved = what_is_saved(options_);
  const auto text = to_text(report);
  // What the rank has said may not have been seen.
  const bool elsewhere = outcome.node != 0 || hides_errors(plan_.output, plan_.local_ranks);
  const bool user_error = !report.verdict && outcome.code == static_cast<int>(ExitCode::kUser);
  // A user's mistake was told by the rank that met it, if that was on this terminal.
  if (!user_error || elsewhere) {
    const auto level = restart                          ? LogLevel::kWarning
                       : is_untold(report) || elsewhere ? LogLevel::kError
                                                        : LogLevel::kInfo;
    log_line(level, "launch: " + text);
  }
  if (restart) return begin_again();
  write_error_file(report);
  coordinator_.quit(outcome.code, first_line(text) + "; the report is in the output of node 0");
}

void HeadNode::leave(const NodeStatus& status) {
  if (!status.problem.empty()) {  // told by whoever met it
    coordinator_.quit(status.problem_code,
                      fmt::format("node 0 ({}): {}", status.host, status.problem));
    publish(coordinator_.decide(Clock::now()));
  }
  // A node that is about to join learns why there is no run, instead of waiting for one.
  const bool patient = published_.code != static_cast<int>(ExitCode::kStopped);
  const auto all_know = [&] {
    return coordinator_.all_have_left() && (!patient || coordinator_.missing_nodes().empty());
  };
  const auto until = Clock::now() + kFarewell;
  while (Clock::now() < until && !all_know()) {
    std::this_thread::sleep_for(milliseconds(10));
    take_heard();
  }
}

}  // namespace skein::launch
