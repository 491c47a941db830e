// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One rank of a command from its start to its exit code, in skein-worker. launch_ranks.h starts it.

#include <functional>
#include <string>

#include "skein/cli/rank_session.h"
#include "skein/config/load.h"
#include "skein/train/world.h"

namespace skein::cli {

struct RankCommand {
  // What the command does on every rank; returns the exit code.
  std::function<int(const config::Resolved& resolved, train::World& world)> body;
  RankSession::Prepare prepare = {};  // data; empty: nothing to prepare
  // The body looks at world.stop_requested, saves and ends. Otherwise a request to stop ends the
  // rank at once.
  bool ends_by_itself = false;
};

// RankCommand::prepare of commands that train.
std::string prepare_training_data(config::RunConfig config, bool may_overwrite);

// Throws UserError when the process was not started as a rank.
int run_rank(const RankCommand& command);

}  // namespace skein::cli
