// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do launchers tell each other? Each node its state, node 0 what all are to do.
//
// Both are states, not events: the newest counts, and one that was missed does no harm.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "skein/launch/process/child.h"
#include "skein/launch/watch/diagnosis.h"
#include "skein/launch/watch/node_identity.h"

namespace skein::launch {

struct RankStatus {
  RankView view;
  int64_t pid = 0;
  std::optional<ChildEnd> end;
  int64_t end_ms = 0;        // since it ended
  bool ours = false;         // it died of a signal that its launcher sent
  bool oom_counted = false;  // the cgroup's count of OOM kills rose as it was killed
  std::string logs;          // file to look at; empty: none
};

struct NodeStatus {
  int node = 0;
  int nodes = 1;  // that it was told of
  std::string host;
  int64_t pid = 0;  // of the launcher
  int local_ranks = 0;
  std::optional<NodeIdentity> identity;  // once known, until the ranks start
  std::string problem;                   // why it cannot take part; empty: nothing
  int problem_code = 0;
  int stop_signal = 0;       // it was asked to stop; 0: not
  bool interrupted = false;  // it was asked to stop at once
  bool leaving = false;      // it has obeyed Order::kQuit
  uint64_t generation = 0;
  std::vector<RankStatus> ranks;  // of this generation; empty before they start
};

// kWait: nothing yet. kRun: run the ranks of `generation`. kEnd: end them. kQuit: leave.
enum class Order : uint8_t { kWait, kRun, kEnd, kQuit };

struct NodeCommand {
  Order order = Order::kWait;
  uint64_t generation = 0;
  std::vector<int> first_ranks;  // of each node; one entry more: the number of ranks
  bool continues = false;        // kRun: the generation before had begun to train
  // kRun: what the ranks do without, for want of memory, as words that change their configuration.
  std::string given_up;
  bool stop = false;     // kRun: finish the step, save, exit
  bool at_once = false;  // kEnd: SIGKILL instead of SIGTERM first
  // Nodes that came back to a run and do not fit it, and why: they leave, whatever the order is.
  std::map<int, std::string> refused;
  int code = 0;         // kQuit
  std::string message;  // kQuit: why, for nodes other than 0
  friend bool operator==(const NodeCommand&, const NodeCommand&) = default;
};

std::string encode(const NodeStatus& status);
std::string encode(const NodeCommand& command);
// Nothing for text that is none.
std::optional<NodeStatus> decode_status(const std::string& text);
std::optional<NodeCommand> decode_command(const std::string& text);

}  // namespace skein::launch
