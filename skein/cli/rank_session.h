// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A rank's ties to the rest of its run: the store, the board and, where another launcher has
// started it, all that skein's own launcher would do: lease, data, comparison, watch.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "skein/cli/guard.h"
#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/core/store.h"
#include "skein/launch/foreign/foreign_watch.h"
#include "skein/launch/process/early_stop.h"
#include "skein/launch/ranks/lease.h"
#include "skein/launch/ranks/rank_environment.h"

namespace skein::cli {

class RankSession {
 public:
  // Joins the store, of another launcher's rank within `join_timeout`. Throws CommError when it
  // cannot be reached, UserError when this rank is to serve it and cannot.
  explicit RankSession(launch::RankEnvironment environment,
                       std::chrono::seconds join_timeout = std::chrono::seconds(120));

  const launch::RankEnvironment& environment() const { return environment_; }
  bool is_foreign() const { return !environment_.foreign.name.empty(); }
  Store& store() { return *store_; }
  // A mistake that all ranks make is told once, by the rank that meets it first.
  GuardHooks hooks();

  // Before any process group. `prepare` makes the data that a rank needs and returns their digest;
  // `may_overwrite` holds for one rank of each node. Skein's own launcher has done all this.
  using Prepare = std::function<std::string(config::RunConfig config, bool may_overwrite)>;
  void begin(const config::Resolved& resolved, const Prepare& prepare);
  // For who commits into the output folder: throws CommError when that is no longer this run's.
  // Empty where this process cannot know. After begin().
  std::function<void()> fence(const fs::path& output) const;
  // From here on the caller sees to signals that ask for a stop; until then they end the process
  // with 75, where another launcher has started it.
  void take_stops() { early_stop_.reset(); }
  // All went well: ends in an order that leaves nobody without the store.
  void leave();

 private:
  void attach_board(const fs::path& output) const;
  void take_lease(const config::CheckpointConfig& checkpoint);
  void compare_nodes(const config::Resolved& resolved, const std::string& data);
  void give_lease_back();

  const launch::RankEnvironment environment_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<launch::ForeignWatch> watch_;  // uses the store
  std::atomic<bool> failing_ = false;
  std::mutex lease_mutex_;
  std::unique_ptr<launch::Lease> lease_;           // its thread uses the watch
  std::unique_ptr<launch::EarlyStop> early_stop_;  // last: it uses the lease
};

}  // namespace skein::cli
