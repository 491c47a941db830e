// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/node_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};       // deadlines are looked at so often
constexpr milliseconds kTellEvery{250};  // boards are read so often

// Without one a rank's libraries do not find each other, and their words help nobody.
void need_working_folder() {
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  if (!here.empty()) return;
  throw UserError(fmt::format(
      "the folder that this command was started in cannot be used any more ({}); change into one "
      "that exists, and give paths that are right there",
      error.message()));
}

}  // namespace

NodeLoop::NodeLoop(const RankSetup& setup, const SignalInbox& inbox, Commander& commander)
    : setup_(setup), inbox_(inbox), commander_(commander) {
  status_.node = setup.plan.node_rank;
  status_.nodes = setup.plan.nodes;
  status_.host = setup.host;
  status_.pid = getpid();
  status_.local_ranks = setup.plan.local_ranks;
  commander_.report(status_);
}

void NodeLoop::give_up(int code, const std::string& problem) {
  status_.problem = problem;
  status_.problem_code = code;
  commander_.leave(status_);
}

int NodeLoop::run(std::function<NodeIdentity(const std::string&)> identify) {
  identify_ = std::move(identify);
  bool changed = true;
  take_signals();  // that came while the data was prepared
  while (true) {
    update(changed);
    if (const auto why = setup_.lease != nullptr ? setup_.lease->lost() : std::nullopt) {
      return end_alone(static_cast<int>(ExitCode::kComm), *why);
    }
    const auto command = commander_.command();
    if (command.order == Order::kQuit) return quit(command.code, command.message);
    if (const auto why = command.refused.find(status_.node); why != command.refused.end()) {
      return quit(static_cast<int>(ExitCode::kUser), why->second);
    }
    if (const auto lost = commander_.head_lost()) return end_alone(lost->code, lost->why);
    if (status_.stop_signal != 0 && !commander_.token()) {  // nobody else is to be asked
      log_warning("launch: stopped before this node met node 0");
      return static_cast<int>(ExitCode::kStopped);
    }
    obey(command);
    wait_for_event();
    changed = take_signals();
    if (ranks_ && ranks_->take_events()) {
      changed = true;
      if (setup_.lease != nullptr) setup_.lease->look();  // it may be why a rank has ended
    }
  }
}

void NodeLoop::wait_for_event() const {
  std::vector<pollfd> entries{{inbox_.descriptor(), POLLIN, 0},
                              {commander_.descriptor(), POLLIN, 0}};
  if (ranks_) ranks_->add_to(entries);
  poll(entries.data(), entries.size(), static_cast<int>(kTick.count()));
}

bool NodeLoop::take_signals() {
  bool changed = false;
  while (const auto signal = inbox_.take()) {
    if (*signal == SIGTSTP) {
      pause();
      continue;
    }
    changed = true;
    if (*signal == SIGINT && ++interrupts_ > 1) {
      status_.interrupted = true;
      continue;
    }
    if (status_.stop_signal != 0) continue;
    status_.stop_signal = *signal;
    const char* effect =
        !all_ended() ? ": the ranks save and exit, at most two steps from here" : "";
    log_info("launch: SIG{} received{}{}", sigabbrev_np(*signal), effect,
             *signal == SIGINT ? " (Ctrl-C again: stop at once)" : "");
  }
  return changed;
}

// Ctrl-Z: ranks stand still with their launcher, and so do all clocks.
void NodeLoop::pause() {
  if (setup_.plan.nodes > 1) {
    log_warning(
        "launch: Ctrl-Z does nothing in a run of several nodes: the others would take this one for "
        "lost");
    return;
  }
  log_info("launch: paused; `fg` or SIGCONT goes on");
  if (ranks_) ranks_->pause();
  Clock::freeze();
  const auto time = SignalInbox::stop_process();
  Clock::thaw();
  if (ranks_) ranks_->go_on(time);
  log_info("launch: goes on after {:.0f} s", std::chrono::duration<double>(time).count());
}

void NodeLoop::update(bool at_once) {
  const auto now = Clock::now();
  if (!at_once && now < told_ + kTellEvery) return;
  told_ = now;
  if (!ranks_ && !status_.identity && identify_) {
    if (const auto token = commander_.token()) status_.identity = identify_(*token);
  }
  if (ranks_) {
    status_.identity.reset();
    status_.generation = ranks_->generation();
    status_.ranks = ranks_->status();
  }
  commander_.report(status_);
}

void NodeLoop::obey(const NodeCommand& command) {
  switch (command.order) {
    case Order::kRun:
      if (!ranks_ || ranks_->generation() != command.generation) start_ranks(command);
      if (command.stop && ranks_) ranks_->stop();
      break;
    case Order::kEnd:
      if (ranks_ && ranks_->generation() == command.generation) {
        ranks_->end(command.at_once);
      } else {
        status_.generation = command.generation;  // none of its ranks runs here
        status_.ranks.clear();
      }
      break;
    case Order::kWait:
    case Order::kQuit:
      break;
  }
}

void NodeLoop::start_ranks(const NodeCommand& command) try {
  if (!status_.problem.empty()) return;
  need_working_folder();
  told_ = {};  // so that the next update is sent at once
  kill_and_reap();
  ranks_.reset();  // so that its last output is shown before the next start's
  auto setup = setup_;
  setup.rank.given_up = command.given_up;
  if (!command.given_up.empty()) setup.configuration = setup.configure(command.given_up);
  ranks_ = std::make_unique<LocalRanks>(setup, command, commander_.secret());
} catch (const UserError& error) {
  status_.problem = error.what();
  status_.problem_code = static_cast<int>(ExitCode::kUser);
} catch (const IoError& error) {
  status_.problem = error.what();
  status_.problem_code = static_cast<int>(ExitCode::kIo);
}

void NodeLoop::kill_and_reap() {
  while (!all_ended() && !ranks_->given_up()) {
    ranks_->end(/*at_once=*/true);
    std::vector<pollfd> entries;
    ranks_->add_to(entries);
    poll(entries.data(), entries.size(), static_cast<int>(kTick.count()));
    ranks_->take_events();
  }
}

int NodeLoop::end_alone(int code, const std::string& why) {
  kill_and_reap();
  log_error("launch: {}", why);
  if (!all_ended()) log_error("launch: could not be ended: {}", ranks_->remaining());
  return code;
}

int NodeLoop::quit(int code, const std::string& why) {
  kill_and_reap();
  status_.leaving = true;
  update(/*at_once=*/true);
  commander_.leave(status_);
  // Node 0 has reported on its own terminal; a second report here would say the same.
  if (status_.node != 0 && !why.empty()) log_error("launch: {}", why);
  return code;
}

}  // namespace skein::launch
