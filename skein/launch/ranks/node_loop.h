// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The life of one launcher: waits for signals, deaths and orders, tells its state, obeys.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "skein/launch/process/signal_inbox.h"
#include "skein/launch/ranks/local_ranks.h"
#include "skein/launch/watch/node_status.h"

namespace skein::launch {

// Node 0, the head, can no longer tell this node what to do.
struct HeadLost {
  int code = 3;  // that this node ends with
  std::string why;
};

// Tells this node what to do: on node 0 the coordinator of this process, elsewhere node 0.
class Commander {
 public:
  virtual ~Commander() = default;

  // Becomes readable when command() may have changed; -1: nothing to wait for.
  virtual int descriptor() const = 0;
  virtual void report(const NodeStatus& status) = 0;
  virtual NodeCommand command() = 0;  // what to do now
  virtual std::optional<HeadLost> head_lost() const = 0;
  // Node 0's, by which nodes see that they share the output folder; nothing before they have met.
  virtual std::optional<std::string> token() const = 0;
  // Of the store; asked once the ranks are to start.
  virtual control::Secret secret() const = 0;
  // Reports a last time before quitting, and waits shortly until the report has arrived.
  virtual void leave(const NodeStatus& status) = 0;
};

class NodeLoop {
 public:
  // Says that this node is there. All must outlive the loop.
  NodeLoop(const RankSetup& setup, const SignalInbox& inbox, Commander& commander);

  // Until the order to quit, or until node 0 is lost; returns the exit code. `identify` is asked
  // once, with the token; may be empty for a single node.
  int run(std::function<NodeIdentity(const std::string& token)> identify);
  // This node cannot take part; tells the others.
  void give_up(int code, const std::string& problem);

 private:
  void wait_for_event() const;
  bool take_signals();
  void pause();
  void update(bool at_once);
  void obey(const NodeCommand& command);
  void start_ranks(const NodeCommand& command);
  int quit(int code, const std::string& why);
  int end_alone(int code, const std::string& why);  // nobody gives orders any more
  bool all_ended() const { return !ranks_ || ranks_->all_ended(); }
  void kill_and_reap();

  const RankSetup& setup_;
  const SignalInbox& inbox_;
  Commander& commander_;
  std::function<NodeIdentity(const std::string&)> identify_;
  std::unique_ptr<LocalRanks> ranks_;
  NodeStatus status_;
  Time told_{};  // when the state was told last
  int interrupts_ = 0;
};

}  // namespace skein::launch
