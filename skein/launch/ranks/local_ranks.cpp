// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/local_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

#include "skein/core/host.h"
#include "skein/launch/process/inherited_bytes.h"
#include "skein/launch/watch/failure_report.h"

namespace skein::launch {
namespace {

// Finished calls per rank that a status carries: enough to see where two ranks went apart.
constexpr size_t kCallsShown = 16;

}  // namespace

LocalRanks::LocalRanks(const RankSetup& setup, const NodeCommand& command,
                       const control::Secret& secret)
    : generation_(command.generation),
      host_(setup.host),
      grace_(setup.grace),
      longest_end_(setup.longest_end),
      secret_(control::share_secret(secret)),
      configuration_(setup.configuration.empty() ? File() : share_bytes(setup.configuration)),
      outputs_(setup.plan.output, command.first_ranks.at(setup.plan.node_rank),
               setup.plan.local_ranks, static_cast<int>(command.generation)),
      oom_kills_(oom_kills()) {
  auto place = setup.rank;
  place.generation = command.generation;
  place.continues = command.continues;
  place.size = command.first_ranks.back();
  place.local_size = setup.plan.local_ranks;
  if (setup.lease != nullptr) place.lease = setup.lease->token();
  for (place.local_rank = 0; place.local_rank < place.local_size; ++place.local_rank) {
    place.rank = command.first_ranks.at(setup.plan.node_rank) + place.local_rank;
    start(setup, place);
  }
  outputs_.close_child_ends();
}

void LocalRanks::start(const RankSetup& setup, RankEnvironment place) {
  board::Board board(place.rank);
  place.board = board.descriptor();
  const auto streams = outputs_.streams_of(place.local_rank);
  auto environment = setup.environment;
  environment.erase(
      "TORCHELASTIC_ERROR_FILE");  // the launcher's own; a rank gets a file of its own
  if (!streams.error_file.empty()) environment["TORCHELASTIC_ERROR_FILE"] = streams.error_file;
  const Inherited inherited{.secret = secret_.descriptor(),
                            .configuration = configuration_.descriptor()};
  for (const auto& [name, value] : to_environment(place, inherited)) environment[name] = value;

  ChildCommand child{.arguments = setup.arguments,
                     .environment = {},
                     .inherited = {secret_.descriptor(), board.descriptor()},
                     .out = streams.out,
                     .error = streams.error,
                     .cpus = setup.cpus.at(static_cast<size_t>(place.local_rank))};
  if (configuration_) child.inherited.push_back(configuration_.descriptor());
  if (setup.lease != nullptr) child.inherited.push_back(setup.lease->descriptor());
  for (const auto& [name, value] : environment) child.environment.push_back(name + "=" + value);
  Child process(child);
  const pid_t pid = process.pid();
  ranks_.push_back({.child = std::move(process), .board = std::move(board), .pid = pid});
}

bool LocalRanks::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.end.has_value(); });
}

bool LocalRanks::given_up() const { return killed_ && Clock::now() >= *killed_ + longest_end_; }

std::string LocalRanks::remaining() const {
  std::string text;
  for (const auto& rank : ranks_) {
    if (!rank.end) text += fmt::format("{}pid {}", text.empty() ? "" : ", ", rank.pid);
  }
  return text;
}

void LocalRanks::pause() const {
  for (const auto& rank : ranks_) rank.child.send_group(SIGSTOP);
}

void LocalRanks::go_on(std::chrono::nanoseconds paused) {
  for (auto& rank : ranks_) {
    rank.board.forgive(paused);  // first: the rank must not see a time that has jumped
    rank.child.send_group(SIGCONT);
  }
}

void LocalRanks::add_to(std::vector<pollfd>& entries) const {
  for (const auto& rank : ranks_) {
    if (!rank.end) entries.push_back({rank.child.descriptor(), POLLIN, 0});
  }
  outputs_.add_to(entries);
}

bool LocalRanks::take_events() {
  outputs_.copy_ready();
  bool ended = false;
  for (auto& rank : ranks_) {
    if (rank.end) continue;
    if (const auto end = rank.child.reap()) {
      note_end(rank, *end);
      ended = true;
    }
  }
  if (!killed_ && kill_at_ && *kill_at_ <= Clock::now()) kill_all();
  return ended;
}

void LocalRanks::note_end(Rank& rank, const ChildEnd& end) {
  rank.end = end;
  rank.ended = Clock::now();
  rank.ours = (end.signal == SIGTERM && asked_) || (end.signal == SIGKILL && killed_.has_value());
  if (end.signal != SIGKILL || rank.ours) return;
  const auto kills = oom_kills();
  rank.oom_counted = kills && oom_kills_ && *kills > *oom_kills_;
  oom_kills_ = kills;
}

void LocalRanks::stop() {
  if (std::exchange(asked_, true)) return;
  for (const auto& rank : ranks_) rank.child.send(SIGTERM);
}

void LocalRanks::end(bool at_once) {
  if (at_once) {
    kill_all();
  } else if (!std::exchange(ending_, true)) {
    asked_ = true;
    for (const auto& rank : ranks_) rank.child.send(SIGTERM);
    kill_at_ = Clock::now() + grace_;
  }
}

void LocalRanks::kill_all() {
  if (killed_) return;
  killed_ = Clock::now();
  for (const auto& rank : ranks_) rank.child.send_group(SIGKILL);
}

std::vector<RankStatus> LocalRanks::status() const {
  const auto now = Clock::now();
  std::vector<RankStatus> status;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto& rank = ranks_[i];
    RankStatus one;
    one.view.board = rank.board.read(kCallsShown);
    one.view.host = host_;
    one.view.ended = rank.end.has_value();
    one.view.process_state = rank.end ? 'Z' : process_state(rank.pid).value_or('Z');
    one.pid = rank.pid;
    one.end = rank.end;
    if (rank.end) {
      one.end_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - rank.ended).count();
    }
    one.ours = rank.ours;
    one.oom_counted = rank.oom_counted;
    one.logs = outputs_.where(static_cast<int>(i));
    status.push_back(std::move(one));
  }
  return status;
}

}  // namespace skein::launch
