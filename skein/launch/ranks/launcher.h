// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Starts the ranks of this machine, watches them, and ends with one exit code.
//
// - The first rank that fails ends the others: SIGTERM, then SIGKILL after `grace`.
// - The code is the root cause's: the earliest failure that is no communication error (3), seen
//   within `root_cause_window` of the first; else the earliest. A rank killed by a signal gives 1.
// - Ranks that wait for each other in vain (a stopped process, a late peer, calls that do not
//   match) are ended with 3.
// - SIGTERM, SIGHUP, SIGUSR1 and the first SIGINT reach each rank once, as SIGTERM: it saves at
//   most two steps later and exits with 75. A second SIGINT kills all ranks and gives 130.
// - What a restart can heal is restarted, plan.max_restarts times: not 0, 2, 75 and 130.
// - Ranks whose first update runs out of memory start again with less, where there is a ladder.
// - Before there is a rank to ask, a stop ends the launcher with 75: within about two seconds, also
//   while it waits for a disk.
// - However the launcher ends, no rank outlives it, but one that hangs in the kernel: that is named
//   after `longest_end`, and not waited for.
//
// With several nodes each runs a launcher. Node 0 serves the control store, decides and reports;
// the others obey it, and end with 3 when they lose it.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/control/secret.h"
#include "skein/core/file.h"
#include "skein/launch/placement/launch_plan.h"
#include "skein/launch/watch/diagnosis.h"

namespace skein::launch {

struct LaunchOptions {
  std::chrono::milliseconds grace{1000};  // kill -9 cannot harm a checkpoint
  std::chrono::milliseconds root_cause_window{1000};
  std::chrono::milliseconds stop_grace{30'000};     // without progress, after a request to stop
  std::chrono::milliseconds longest_end{60'000};    // of ranks that were killed: then they remain
  std::chrono::milliseconds join_timeout{600'000};  // for nodes and ranks to meet
  std::chrono::milliseconds node_silence{3000};     // after which a node is lost
  Limits limits;

  fs::path output;      // leased, and where failures are counted; empty: neither
  std::string command;  // that continues the run, for the report
  // The newest checkpoint of the run, for the report. Empty: it saves none.
  std::function<std::optional<fs::path>()> saved;
  std::string rank_configuration;  // bytes that each rank is handed (RankEnvironment)

  // Where a first update may run out of memory and the run go on with less: what it does without
  // from its beginning, what it gives up next (empty: nothing is left), and what ranks are handed
  // then; as words that change their configuration. It is no restart that counts.
  struct Ladder {
    std::string given_up;
    std::function<std::string(const std::string& given_up)> lower;
    std::function<std::string(const std::string& given_up)> configure;
  };
  std::optional<Ladder> ladder = {};

  // Prepares the data and returns its digest. Runs under the lease, before any rank starts. Throws
  // Stopped when a signal that asks for a stop waits.
  std::function<std::string()> prepare;
  std::string configuration_text;         // resolved, as YAML: nodes must agree in it
  std::optional<control::Secret> secret;  // that all nodes were given by other means than a file
  bool needs_shared_output = true;        // false: save_on_each_node
};

// Runs `arguments` (the program's path first) once per rank. Call on the main thread, before any
// other thread exists: signals are blocked for the time of the call. After a failure one report on
// stderr says what happened. Throws UserError when the output folder is in use, or the address or
// port cannot be had.
int launch(const LaunchPlan& plan, const std::vector<std::string>& arguments,
           const LaunchOptions& options = {});

}  // namespace skein::launch
