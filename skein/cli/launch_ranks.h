// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Starts the ranks of a command: on this machine, on other nodes, over ssh, or as one rank of
// another launcher. Whatever command starts them, they have the same flags, restarts and reports.
//
// The command's worker entry (rank_run.h) runs once per rank, in skein-worker.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/launch/process/early_stop.h"
#include "skein/plan/fit.h"
#include "skein/plan/rules.h"

namespace skein::cli {

struct RankJob {
  std::string command;                 // of skein and of skein-worker: "train"
  std::vector<std::string> typed;      // all words after it, for the line that continues the run
  std::vector<std::string> arguments;  // the same without launch flags: for other nodes and ranks
  launch::LaunchFlags flags;
  // Handed to every rank. A command that has no configuration gives the defaults and its device.
  config::Resolved resolved;

  // Decides what the configuration leaves open, on every node alike; returns why, line by line.
  // Nodes that decide differently are refused like nodes with different configurations. Empty:
  // nothing is open.
  std::function<std::vector<std::string>(config::Resolved&, const plan::Machine&)> settle = {};
  // Where `settle` has decided something: does the run go on with less once its first update has
  // run out of memory (plan/ladder.h)?
  bool gives_up = false;
  // Refuses a number of ranks. Empty: any will do.
  std::function<void(int size)> check_size = {};
  // Refuses what will not run, before any rank of a node starts. Empty: nothing to refuse. This and
  // prepare() are given the configuration as it is to be seen on this node.
  std::function<void(const config::Resolved&, int size, const plan::Place& place)> check = {};
  // Refuses a run whose files, or what it offloads, will not fit; asked once on every node. Empty:
  // there is neither.
  std::function<void(const config::Resolved&, const plan::Machine&)> check_space = {};
  // Prepares the data of a node, refuses what will not do, and returns its digest. Empty: there is
  // nothing to prepare.
  std::function<std::string(const config::Resolved&, int size)> prepare = {};
};

// The first call of a command that starts ranks: sets signals and log level, splits its words.
struct RankCommand {
  launch::SplitArguments words;
  // From here on a stop is heard, whatever disk is waited for; launch_ranks() takes it.
  std::unique_ptr<launch::EarlyStop> early_stop;
};
RankCommand begin_rank_command(std::span<const std::string> arguments);

// Returns the exit code of the run; errors before the first rank propagate as exceptions.
int launch_ranks(const RankJob& job, std::unique_ptr<launch::EarlyStop> early_stop);

}  // namespace skein::cli
