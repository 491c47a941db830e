// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/rank_session.h"

#include <fmt/format.h>

#include <random>
#include <vector>

#include "skein/board/board.h"
#include "skein/cli/limits.h"
#include "skein/comm/foreign_store.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/file_system.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/launch/watch/node_identity.h"

namespace skein::cli {
namespace {

bool serves(const launch::RankEnvironment& rank) {
  return !rank.foreign.store_is_served && rank.rank == 0;
}

bool on_one_machine(const launch::RankEnvironment& rank) { return rank.local_size == rank.size; }

std::unique_ptr<Store> open_store(const launch::RankEnvironment& rank,
                                  std::chrono::seconds join_timeout) {
  if (rank.foreign.name.empty()) return launch::connect_store(rank, join_timeout);
  return comm::join_foreign_store({.host = rank.store_host,
                                   .port = rank.store_port,
                                   .serve = serves(rank),
                                   .one_machine = on_one_machine(rank),
                                   .prefix = fmt::format("skein/{}/", rank.foreign.attempt),
                                   .timeout = join_timeout});
}

fs::path board_file(const fs::path& output, int rank) {
  return output / "logs" / fmt::format("board-{}", rank);
}

std::optional<board::BoardView> board_left(const fs::path& output, int rank) try {
  if (output.empty()) return std::nullopt;
  return board::Board::open_file(board_file(output, rank)).read();
} catch (const IoError&) {
  return std::nullopt;
}

std::string failures_key(const launch::RankEnvironment& rank) {
  return fmt::format("run/{}/failures", rank.generation);
}

}  // namespace

RankSession::RankSession(launch::RankEnvironment environment, std::chrono::seconds join_timeout)
    : environment_(std::move(environment)) {
  if (environment_.board >= 0) board::attach_board(environment_.board);
  if (is_foreign())
    early_stop_ = std::make_unique<launch::EarlyStop>([this] { give_lease_back(); });
  board::enter_phase(board::Phase::kJoining);
  store_ = open_store(environment_, join_timeout);
}

GuardHooks RankSession::hooks() {
  return {.may_speak = [this] { return store_->add(failures_key(environment_), 1) == 1; },
          .on_failure =
              [this](ExitCode code, const std::string& message) {
                if (!watch_) return;
                if (code == ExitCode::kStopped) return give_lease_back();  // all are asked
                // A lost peer is a symptom: who watches all ranks may know the cause.
                if (code == ExitCode::kComm) watch_->wait_for_cause();
                if (!failing_.exchange(true)) watch_->fail(message);
                give_lease_back();  // the process ends without destructors
              }};
}

// A file in the output folder can be read after this process's death; without such a folder the
// page is anonymous.
void RankSession::attach_board(const fs::path& output) const {
  const int rank = environment_.rank;
  if (output.empty()) {
    board::attach_board(board::Board(rank).descriptor());
    return;
  }
  make_directories(output / "logs");
  board::attach_board_file(board_file(output, rank), rank);
}

void RankSession::begin(const config::Resolved& resolved, const Prepare& prepare) {
  board::enter_phase(board::Phase::kLoading);
  if (!is_foreign()) return;
  const auto& rank = environment_;
  const auto& config = resolved.config;
  const auto output = config::output_folder(config.checkpoint);
  attach_board(output);
  board::enter_phase(board::Phase::kLoading);
  const bool one_cpu_machine = on_one_machine(rank) && rank.device == config::Device::kCpu;
  watch_ = std::make_unique<launch::ForeignWatch>(
      *store_, launch::ForeignWatchOptions{
                   .rank = rank.rank,
                   .size = rank.size,
                   .serves = serves(rank),
                   .server = rank.foreign.store_is_served ? rank.foreign.name : "rank 0",
                   .limits = limits_of(resolved, one_cpu_machine),
                   .board_left = [output](int other) { return board_left(output, other); },
                   .put_away = [this] { give_lease_back(); }});
  take_lease(config.checkpoint);
  // One rank of each node works, the others wait for its result.
  const auto data = prepare ? prepare(config, /*may_overwrite=*/rank.local_rank == 0) : "";
  if (!on_one_machine(rank)) compare_nodes(resolved, data);
}

// By the rank that commits: one of the run, or one of each node that has a folder of its own.
void RankSession::take_lease(const config::CheckpointConfig& checkpoint) {
  const auto output = config::output_folder(checkpoint);
  const int place = checkpoint.save_on_each_node ? environment_.local_rank : environment_.rank;
  if (place != 0 || output.empty()) return;
  const auto on_lost = [this](const std::string& why) {
    if (failing_.exchange(true)) return;  // it is ending already
    log_error("{}", why);
    board::report_failure(why);
    watch_->fail(why);
    end_at_once(static_cast<int>(ExitCode::kComm));
  };
  auto lease = std::make_unique<launch::Lease>(output, launch::LeaseTimes{}, on_lost);  // may wait
  const std::lock_guard lock(lease_mutex_);
  lease_ = std::move(lease);
}

void RankSession::give_lease_back() {
  const std::lock_guard lock(lease_mutex_);
  lease_.reset();
}

std::function<void()> RankSession::fence(const fs::path& output) const {
  const auto token = lease_ ? lease_->token() : environment_.lease;
  if (token.empty() || output.empty()) return {};
  // What slips between a check and a write finds the folder held.
  return [fence = std::make_shared<launch::Fence>(output, token),
          held = std::make_shared<HeldFolder>(output)] { fence->check(); };
}

// Every rank tells what its node is; rank 0 compares. The watch ends a wait that is in
// vain, the deadline is for data that takes longer elsewhere.
void RankSession::compare_nodes(const config::Resolved& resolved, const std::string& data) {
  const auto& rank = environment_;
  const auto& config = resolved.config;
  const auto patience = limits_of(resolved, /*one_cpu_machine=*/false).first_step;
  const auto output = config::output_folder(config.checkpoint);
  launch::NodeIdentity identity{.node = rank.rank,
                                .host = host_name(),
                                .local_ranks = rank.local_size,
                                .device = rank.device == config::Device::kCuda ? "cuda" : "cpu",
                                .binary = launch::binary_digest(),
                                .data = data,
                                .output_dir = output.string()};
  launch::set_configuration(identity, config::to_yaml(resolved));
  if (output.empty()) {
    // Nothing is saved, so that there is no folder to share.
  } else if (rank.rank == 0) {
    const auto token = fmt::format("{:08x}", std::random_device{}());
    identity.output_problem = launch::write_token(output, token);
    store_->set("identity/token", token);
  } else {
    const auto token = store_->get("identity/token", patience);
    identity.output_problem = launch::try_to_write(output);
    identity.sees_token = launch::sees_token(output, token);
  }
  store_->set(fmt::format("identity/{}", rank.rank), launch::encode(identity));
  if (rank.rank == 0) {
    std::vector<launch::NodeIdentity> all;
    for (int i = 0; i < rank.size; ++i) {
      const auto text = store_->get(fmt::format("identity/{}", i), patience);
      all.push_back(launch::decode_identity(text).value_or(launch::NodeIdentity{.node = i}));
    }
    if (!output.empty()) launch::remove_token(output);
    const auto difference =
        launch::find_difference(all, !config.checkpoint.save_on_each_node).value_or("");
    store_->set("identity/difference", difference);
  }
  const auto difference = store_->get("identity/difference", patience);
  if (!difference.empty()) throw UserError(difference);
}

void RankSession::leave() {
  board::enter_phase(board::Phase::kEnding);
  if (watch_) watch_->leave();
}

}  // namespace skein::cli
