// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Node 0: serves the store, hears all nodes, decides, reports, restarts.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "skein/control/store_server.h"
#include "skein/launch/ranks/launcher.h"
#include "skein/launch/ranks/node_loop.h"
#include "skein/launch/watch/coordinator.h"

namespace skein::launch {

class HeadNode final : public Commander {
 public:
  // Listens when it returns: on 127.0.0.1 and a free port for one node, else where the plan says.
  // Throws UserError when that cannot be had.
  // `token` names this run among others; `secret` is what the machines share.
  HeadNode(const LaunchPlan& plan, const LaunchOptions& options, const control::Secret& secret,
           const std::string& token);
  ~HeadNode() override;

  const std::string& host() const { return host_; }
  int port() const { return server_->port(); }

  int descriptor() const override { return wake_.descriptor(); }
  void report(const NodeStatus& status) override;
  NodeCommand command() override;
  std::optional<HeadLost> head_lost() const override { return std::nullopt; }
  std::optional<std::string> token() const override { return token_; }
  control::Secret secret() const override { return secret_; }
  void leave(const NodeStatus& status) override;

 private:
  // Since it was looked at last, in this order.
  struct Heard {
    uint64_t admission = 0;  // a new launcher has this node's place; 0: none
    std::string status;      // newest
    Time when;
    bool closed = false;
  };

  void admit(int node, uint64_t admission);
  void hear(int node, const std::string& key, const std::string& value);
  void note_closed(int node);
  void take_heard();
  void expel_lost_nodes();
  void name_missing_nodes(Time now);
  void publish(const NodeCommand& command);
  void resolve(const Outcome& outcome);
  void resolve_failure(const Outcome& outcome);
  bool go_on_with_less(const FailureReport& failure);
  void await_lost_nodes(const Outcome& outcome);
  void begin_again();
  struct Next {
    bool restart = false;
    std::string text;  // for the report
  };
  Next after_failure(const Outcome& outcome);

  const LaunchPlan& plan_;
  const LaunchOptions& options_;
  const control::Secret secret_;  // of this run
  std::string host_;
  std::string token_;
  Coordinator coordinator_;
  File wake_;
  std::mutex mutex_;  // of the line below, which the store's thread writes
  std::map<int, Heard> heard_;
  std::unique_ptr<control::StoreServer> server_;
  std::map<int, uint64_t> admissions_;  // of the nodes that are here
  NodeCommand published_;
  uint64_t serial_ = 0;  // of published_
  Time waiting_since_;   // for nodes to join
  Time named_missing_;
  int restarts_ = 0;
  std::string given_up_;  // for want of memory: LaunchOptions::Ladder
};

}  // namespace skein::launch
