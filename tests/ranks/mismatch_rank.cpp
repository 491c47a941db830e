// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "tests/ranks/mismatch_rank.h"

#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "skein/board/board.h"
#include "skein/comm/group.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/launch/ranks/rank_environment.h"

namespace skein::ranks {
namespace {

using std::chrono::steady_clock;

void note_deed(const fs::path& folder) {
  const auto now = steady_clock::now().time_since_epoch();
  write_file_atomically(
      folder / "deed",
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
}

void sleep_for_good() {
  for (;;) ::pause();
}

void make_good_steps(comm::Group& group, int64_t first, int64_t count) {
  for (int64_t step = first; step < first + count; ++step) {
    board::set_board_step(step, std::vector<int64_t>{2 * step, 2 * step + 1});
    board::enter_phase(board::Phase::kBackward);
    group.all_reduce(at::zeros({int64_t{4} * group.size()})).wait();
    group.sum(int64_t{1});
  }
}

void issue_other_call(comm::Group& group, const std::string& scenario) {
  const int64_t count = int64_t{4} * group.size();
  if (scenario == "op") group.broadcast(at::zeros({count}), 1).wait();
  if (scenario == "size") group.all_reduce(at::zeros({2 * count})).wait();
  if (scenario == "dtype") group.all_reduce(at::zeros({count}, at::kInt)).wait();
}

void misbehave(comm::Group& group, const std::string& scenario, const fs::path& folder) {
  note_deed(folder);
  if (scenario == "late" || scenario == "late-agreement") sleep_for_good();
  if (scenario == "sigstop-self") ::raise(SIGSTOP);
  issue_other_call(group, scenario);
}

void run(const std::string& scenario, const fs::path& folder) {
  const auto environment = launch::from_environment();
  set_log_rank(environment.rank);
  board::attach_board(environment.board);
  const auto store = launch::connect_store(environment, std::chrono::seconds(60));
  const bool bad = environment.rank == 1;
  if (bad && scenario == "never-joins") {
    note_deed(folder);
    sleep_for_good();
  }
  auto group = comm::connect({.rank = environment.rank,
                              .size = environment.size,
                              .address = environment.interface,
                              .shared_memory = environment.shared_memory,
                              .timeout = std::chrono::minutes(10)},
                             *store);
  make_good_steps(group, 0, 3);
  if (!bad && scenario == "late-agreement") {
    auto agreement = group.start_sum({int64_t{0}});
    group.all_reduce(at::zeros({int64_t{4} * group.size()})).wait();
    agreement.take();
  }
  if (bad) {
    misbehave(group, scenario, folder);
  } else {
    group.all_reduce(at::zeros({int64_t{4} * group.size()})).wait();
  }
  // Types of one width pass sockets unseen: the run goes on.
  for (int64_t step = 3;; ++step) {
    make_good_steps(group, step, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
}

}  // namespace

int run_bad_rank(const std::string& scenario, const fs::path& folder) {
  try {
    run(scenario, folder);
  } catch (const CommError& error) {
    board::report_failure(error.what());
    log_error("{}", error.what());
    ::_exit(static_cast<int>(ExitCode::kComm));  // the group's destructor could wait for its peers
  }
  return 0;
}

}  // namespace skein::ranks
