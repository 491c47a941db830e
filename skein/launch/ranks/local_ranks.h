// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The ranks of one generation on this machine, from their start to the last one's end.
//
// Use on the main thread alone: ranks are tied to it. The destructor kills what still runs.

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/board/board.h"
#include "skein/core/clock.h"
#include "skein/launch/placement/detect.h"
#include "skein/launch/placement/launch_plan.h"
#include "skein/launch/process/child.h"
#include "skein/launch/ranks/lease.h"
#include "skein/launch/ranks/outputs.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/launch/watch/node_status.h"

namespace skein::launch {

// What all generations have in common.
struct RankSetup {
  const LaunchPlan& plan;
  std::vector<std::string> arguments;  // the program's path first
  std::string configuration;           // that each rank is handed; empty: none
  // The same of ranks that do without something: NodeCommand::given_up.
  std::function<std::string(const std::string& given_up)> configure = {};
  Environment environment;
  RankEnvironment rank;          // all but the numbers of the rank and its generation
  const Lease* lease = nullptr;  // of the output folder, for as long as any rank lives
  std::string host;
  std::chrono::milliseconds grace{1000};
  std::chrono::milliseconds longest_end{60'000};  // after SIGKILL: then they are left behind
  std::vector<std::vector<int>> cpus;             // by local rank, as bind_ranks() gives them
};

class LocalRanks {
 public:
  // Starts them as `command` says. Throws UserError when the program is missing, IoError when a log
  // file cannot be made.
  LocalRanks(const RankSetup& setup, const NodeCommand& command, const control::Secret& secret);
  LocalRanks(const LocalRanks&) = delete;

  uint64_t generation() const { return generation_; }
  bool all_ended() const;
  // Nothing more can be done: those that are left were killed long ago.
  bool given_up() const;
  std::string remaining() const;                // those that have not ended
  void pause() const;                           // all of them stand still
  void go_on(std::chrono::nanoseconds paused);  // as if that time had not passed

  // What to wait for with poll().
  void add_to(std::vector<pollfd>& entries) const;
  // Copies output, reaps, and kills those whose time is over. True when a rank has ended since.
  bool take_events();

  void stop();             // once: SIGTERM, upon which a rank finishes its step and saves
  void end(bool at_once);  // SIGTERM and, after the grace time or at once, SIGKILL
  std::vector<RankStatus> status() const;

 private:
  struct Rank {
    Child child;
    board::Board board;
    pid_t pid = 0;
    std::optional<ChildEnd> end = {};
    Time ended{};
    bool ours = false;
    bool oom_counted = false;
  };

  void start(const RankSetup& setup, RankEnvironment place);
  void note_end(Rank& rank, const ChildEnd& end);
  void kill_all();

  const uint64_t generation_;
  const std::string host_;
  const std::chrono::milliseconds grace_, longest_end_;
  const File secret_;
  const File configuration_;
  Outputs outputs_;
  std::vector<Rank> ranks_;
  std::optional<int64_t> oom_kills_;  // counted so far
  bool asked_ = false;                // SIGTERM was sent
  bool ending_ = false;
  std::optional<Time> killed_;   // when SIGKILL was sent
  std::optional<Time> kill_at_;  // when to send it
};

}  // namespace skein::launch
