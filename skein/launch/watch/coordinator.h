// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are the nodes to do next? Decided on node 0 from what all of them report.
//
// A state machine without sockets, files or processes: the nodes meet, run a generation of ranks
// until it ends or must be ended, end it everywhere, and then its owner says whether another one
// follows. Where a node was lost, that one waits until all nodes have met again; one that comes and
// does not fit is sent away. Not thread-safe.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/clock.h"
#include "skein/launch/watch/failure_report.h"
#include "skein/launch/watch/node_status.h"
#include "skein/launch/watch/root_cause.h"

namespace skein::launch {

struct CoordinatorOptions {
  int nodes = 1;
  std::chrono::milliseconds root_cause_window{1000};
  std::chrono::milliseconds stop_grace{30'000};
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds node_silence{3000};
  std::chrono::milliseconds longest_end{60'000};  // of ranks that were told to end
  Limits limits;
  bool needs_shared_output = true;
  bool saves = true;  // a run that is stopped can be continued
};

// How a generation of ranks ended, or why there was none.
struct Outcome {
  int code = 0;
  std::optional<FailureReport> failure = {};  // of a rank
  int node = 0;                               // where that rank ran
  std::string message = {};                   // of any other failure, or a remark on a stop
  bool can_restart = false;                   // another generation could do better
  bool out_of_memory = false;                 // one that takes less could; before its second update
  std::string remains = {};                   // processes that could not be ended; empty: none
};

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, Time now);

  // A node has spoken at that time. Node 0 is a node like the others.
  void take(const NodeStatus& status, Time when);
  // A launcher was started in that node's place. One that had it before is lost, and its ranks.
  void note_admitted(int node, Time when);
  // A node's connection was closed: it is lost unless it is heard again soon.
  void note_closed(int node, Time when);

  // What all nodes are to do now.
  const NodeCommand& decide(Time now);

  // Present when no rank runs any more; then call restart() or quit(). A restart waits for nodes
  // that were lost: they have join_timeout to come back.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  void restart();
  // The next generation does without; words that change its configuration.
  void give_up(std::string words) { command_.given_up = std::move(words); }
  void quit(int code, const std::string& message);

  bool joining() const { return state_ == State::kJoining; }
  std::vector<int> missing_nodes() const;  // that have not been heard of at all
  std::vector<int> lost_nodes() const;
  bool all_have_left() const;  // nodes other than 0 have obeyed quit() or are lost

 private:
  enum class State : uint8_t { kJoining, kRunning, kEnding, kOver };
  struct Node {
    std::optional<NodeStatus> status = {};
    std::optional<NodeIdentity> identity = {};  // kept while its ranks run
    Time heard{};
    bool closed = false;  // since it was heard
    bool lost = false;
    bool late = false;     // it came while a generation ran that it has no part in
    bool settled = false;  // it has had part in a generation
    bool refused = false;  // it is to leave, and what it says does not count
  };
  // A rank's failure, and where to find the rest of what is known of it.
  struct Found {
    Failure failure;
    int node = 0;
    const RankStatus* rank = nullptr;
  };

  void forgive_pause(Time now);
  void join(Time now);
  void refuse_newcomers(Time now);
  void watch(Time now);
  bool end_if_contradictory(Time now);
  std::optional<std::string> contradiction_of(size_t node) const;
  std::optional<std::string> objection_to(size_t node) const;
  bool end_if_lost(Time now);
  bool end_if_asked(Time now);
  bool end_if_failed(Time now);
  bool end_if_stuck(Time now);
  bool end_if_done(Time now);
  void begin_generation();
  void end(Outcome outcome, bool at_once, Time now);
  void finish_ending(Time now);

  bool all_started() const;
  bool all_ended() const;
  bool is_stop(const RankStatus& rank) const;
  bool is_suspect(const Node& node, Time now) const;
  std::vector<Found> failures(Time now) const;
  std::vector<RankView> views() const;
  std::optional<Verdict> find_unstoppable(const std::vector<RankView>& seen, Time now) const;
  Outcome outcome_of(const Found& found) const;
  Outcome outcome_of(const Verdict& verdict) const;
  FailureReport describe_rank(int rank) const;
  std::string name_of_node(int node) const;
  std::string name_remaining() const;
  template <typename Visit>
  void each_rank(const Visit& visit) const;

  const CoordinatorOptions options_;
  std::vector<Node> nodes_;
  Time started_;  // to wait for nodes
  Time decided_;  // last
  State state_ = State::kJoining;
  NodeCommand command_;
  std::optional<Time> stop_since_;
  Time looked_{};                     // when diagnose() was asked last
  std::optional<Verdict> suspicion_;  // of that look: acted on when it comes twice in a row
  size_t ends_at_look_ = 0;           // and how many ranks had ended then
  Outcome ending_;                    // becomes outcome_ once all ranks have ended
  Time ending_since_{};
  std::optional<Outcome> outcome_;
};

}  // namespace skein::launch
