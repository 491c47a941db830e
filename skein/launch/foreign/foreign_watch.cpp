// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/foreign/foreign_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/launch/watch/failure_report.h"

namespace skein::launch {
namespace {

using board::BoardView;
using Json = nlohmann::json;
using Milliseconds = std::chrono::milliseconds;

constexpr auto kVerdictKey = "watch/verdict";
constexpr auto kLeftKey = "watch/left";    // how many are done
constexpr auto kKnownKey = "watch/known";  // how many have seen the verdict
constexpr Milliseconds kFailurePatience{2000};
constexpr Milliseconds kAnswerPatience{60'000};  // where heartbeats are off

std::string board_key(int rank) { return fmt::format("watch/board/{}", rank); }

[[noreturn]] void end_process(const std::string& text, bool to_print,
                              const std::function<void()>& put_away) {
  log_line(to_print ? LogLevel::kError : LogLevel::kInfo, text);
  write_error_file(text);
  if (put_away) put_away();
  std::fflush(nullptr);
  _exit(static_cast<int>(ExitCode::kComm));
}

// What a rank publishes.
struct Notice {
  int64_t count = 0;  // of its notices: one that does not grow is old
  bool left = false;
  std::string host;
  BoardView board;
};

std::string encode(const Notice& notice) {
  return Json{{"count", notice.count},
              {"left", notice.left},
              {"host", notice.host},
              {"board", encode(notice.board)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Notice> decode_notice(const std::string& text) try {
  const auto json = parse_json(text, kMessageLimits);
  const auto board = board::decode_board(json.at("board"));
  if (!board) return std::nullopt;
  return Notice{json.at("count"), json.at("left"), json.at("host"), *board};
} catch (const std::exception&) {
  return std::nullopt;
}

// A rank as this one knows it.
class Peer {
 public:
  explicit Peer(int rank) {
    notice_.board.rank = rank;
    notice_.host = "an unknown host";
  }

  void take(const std::optional<std::string>& text) {
    auto notice = text ? decode_notice(*text) : std::nullopt;
    if (!notice || notice->count <= notice_.count) return;
    notice_ = std::move(*notice);
    heard_ = Clock::now();
  }

  bool left() const { return notice_.left; }
  bool known() const { return notice_.count > 0; }
  Milliseconds silence() const { return std::chrono::floor<Milliseconds>(Clock::now() - heard_); }
  const std::string& host() const { return notice_.host; }
  int64_t pid() const { return notice_.board.pid; }

  // Ages go on while nothing is heard. /proc is asked about a silent rank of this machine only: the
  // number means another process where ranks have process namespaces of their own.
  RankView view(const std::string& here, Milliseconds interval) const {
    RankView view{.board = notice_.board, .host = notice_.host, .ended = notice_.left};
    const auto silent = silence().count();
    for (auto* age : {&view.board.phase_ms, &view.board.beat_ms, &view.board.progress_ms}) {
      *age += silent;
    }
    for (auto& call : view.board.calls) call.age_ms += silent;
    if (known() && notice_.host == here && silence() > 3 * interval) {
      const auto state = process_state(pid());
      view.ended = view.ended || !state || *state == 'Z';
      view.process_state = state.value_or('X');
    }
    return view;
  }

 private:
  Notice notice_;
  Time heard_ = Clock::now();
};

}  // namespace

class ForeignWatch::Loop {
 public:
  Loop(Store& store, ForeignWatchOptions options)
      : store_(store), options_(std::move(options)), host_(host_name()) {
    if (!options_.end) {
      options_.end = [this](const std::string& text, bool to_print) {
        end_process(text, to_print, options_.put_away);
      };
    }
    // Many ranks: rank 0 reads all boards.
    options_.interval = std::max(options_.interval, Milliseconds(2 * options_.size));
    const int peers = options_.rank == 0 ? options_.size : 1;
    for (int rank = 0; rank < peers; ++rank) peers_.emplace_back(rank);
    exchanger_ = std::jthread([this](const std::stop_token& stop) { exchange_all(stop); });
    guard_ = std::jthread([this](const std::stop_token& stop) { guard(stop); });
  }

  void leave(Milliseconds most) {
    leaving_ = true;
    stop_exchanging();
    if (ended_) return;
    ask([&] {
      publish();
      store_.add(kLeftKey, 1);
    });
    if (options_.serves) wait_for_count(kLeftKey, options_.size, most);
  }

  void wait_for_cause() {
    const auto deadline = Clock::now() + options_.limits.heartbeat + kFailurePatience;
    while (!ended_ && Clock::now() < deadline) std::this_thread::sleep_for(Milliseconds(20));
  }

  void fail(const std::string& message) {
    stop_exchanging();
    ask([&] {
      store_.set(kVerdictKey, fmt::format("rank {} of {} on {} failed: {}", options_.rank,
                                          options_.size, host_, message));
    });
    wait_for_count(kKnownKey, options_.size - 1, kFailurePatience);
  }

  void stop() {
    stop_exchanging();
    stop_thread(guard_);
  }

 private:
  void stop_thread(std::jthread& thread) {
    thread.request_stop();
    changed_.notify_all();
    if (thread.joinable()) thread.join();
  }
  // The guard stays: what follows asks the store too.
  void stop_exchanging() { stop_thread(exchanger_); }

  void exchange_all(const std::stop_token& stop) {
    while (!stop.stop_requested() && !ended_) {
      try {
        const Asking asking(*this);
        exchange();
      } catch (const CommError& error) {
        end(fmt::format("rank {} of {} on {} lost the ranks' store, and with it the others: {}",
                        options_.rank, options_.size, host_, error.what()),
            /*to_print=*/true);
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, options_.interval, [&] { return stop.stop_requested(); });
    }
  }

  // While it lives the store owes an answer.
  struct Asking {
    explicit Asking(Loop& loop) : loop_(loop) { loop_.set_asked(Clock::now()); }
    ~Asking() { loop_.set_asked(std::nullopt); }
    Loop& loop_;
  };

  // At the end a store that is gone is as good as one that knows.
  void ask(const std::function<void()>& question) try {
    const Asking asking(*this);
    question();
  } catch (const CommError& error) {
    log_debug("watch: {}", error.what());
  }

  void wait_for_count(const char* key, int count, Milliseconds most) {
    const auto deadline = Clock::now() + most;
    bool reached = false;
    while (!reached && Clock::now() < deadline) {
      reached = true;  // unless the store says otherwise
      ask([&] { reached = store_.add(key, 0) >= count; });
      if (!reached) std::this_thread::sleep_for(Milliseconds(20));
    }
  }

  void exchange() {
    publish();
    if (const auto verdict = store_.try_get(kVerdictKey)) {
      store_.add(kKnownKey, 1);
      end(*verdict, /*to_print=*/false);
      return;
    }
    for (size_t i = 0; i < peers_.size(); ++i) {
      peers_[i].take(store_.try_get(board_key(static_cast<int>(i))));
    }
    // After a pause of the whole machine all ages are wrong for a moment: the second time counts.
    const auto text = options_.rank == 0 ? judge_all() : judge_first();
    if (std::exchange(suspicious_, text.has_value()) && text) {
      // The first to say it prints it.
      const bool first = store_.add("watch/judges", 1) == 1;
      store_.set(kVerdictKey, *text);
      if (options_.serves) wait_for_count(kKnownKey, options_.size - 1, kFailurePatience);
      end(*text, first);
    }
  }

  void publish() {
    auto board = options_.board().value_or(BoardView{});
    board.rank = options_.rank;
    store_.set(board_key(options_.rank), encode(Notice{++count_, leaving_, host_, board}));
  }

  // Rank 0's judgement of everybody.
  std::optional<std::string> judge_all() const {
    std::vector<RankView> views;
    for (const auto& peer : peers_) views.push_back(peer.view(host_, options_.interval));
    for (const auto& peer : peers_) {
      auto& view = views[static_cast<size_t>(&peer - peers_.data())];
      if (view.ended && !peer.left()) return death_of(view, views);
    }
    const auto verdict = diagnose(views, options_.limits);
    return verdict ? std::optional(verdict->text) : std::nullopt;
  }

  // `view` is one of `views`: what was heard of it last is replaced by what it left, if it did.
  std::string death_of(RankView& view, const std::vector<RankView>& views) const {
    const auto left =
        options_.board_left ? options_.board_left(view.board.rank) : std::optional<BoardView>();
    const bool exact = left && left->pid == view.board.pid;
    if (exact) view.board = *left;
    auto text =
        fmt::format("rank {} of {} on {} (pid {}) ended without a word{} in {}, step {}",
                    view.board.rank, options_.size, view.host, view.board.pid,
                    exact ? "" : "; it was last heard", name_of(view.board.phase), view.board.step);
    const auto calls = exact ? last_calls(views, view.board.rank) : "";
    return calls.empty() ? text : text + "\n" + calls;
  }

  // The others' of rank 0, who cannot judge itself.
  std::optional<std::string> judge_first() const {
    const auto& first = peers_.front();
    const auto limit = options_.limits.heartbeat;
    if (!first.known() || first.left() || limit.count() == 0 || first.silence() < limit) {
      return std::nullopt;
    }
    return fmt::format(
        "rank 0 of {} on {} (pid {}) has given no sign for {:.1f} s: it was stopped or killed, or "
        "its machine cannot be reached",
        options_.size, first.host(), first.pid(),
        std::chrono::duration<double>(first.silence()).count());
  }

  // A store whose process is stopped blocks its callers: somebody must stand outside.
  void guard(const std::stop_token& stop) {
    const auto heartbeat = options_.limits.heartbeat;
    const auto limit = heartbeat.count() > 0 ? heartbeat : kAnswerPatience;
    bool was_late = false;
    while (!stop.stop_requested() && !ended_) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, Milliseconds(250), [&] { return stop.stop_requested(); });
      const bool late = asked_ && Clock::now() - *asked_ >= limit;
      if (!std::exchange(was_late, late) || !late) continue;
      lock.unlock();
      end(fmt::format("rank {} of {} on {}: the ranks' store has not answered for {:.1f} s: {}, "
                      "which serves it, was stopped, or its machine cannot be reached",
                      options_.rank, options_.size, host_,
                      std::chrono::duration<double>(limit).count(), options_.server),
          /*to_print=*/true);
      return;
    }
  }

  void set_asked(std::optional<Time> time) {
    const std::lock_guard lock(mutex_);
    asked_ = time;
  }

  void end(const std::string& text, bool to_print) {
    if (!ended_.exchange(true)) options_.end(text, to_print);
  }

  Store& store_;
  ForeignWatchOptions options_;
  const std::string host_;
  std::vector<Peer> peers_;  // rank 0: all; others: rank 0
  int64_t count_ = 0;
  bool suspicious_ = false;  // the last look has found something
  std::atomic<bool> leaving_ = false, ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Time> asked_;       // since when the store owes an answer
  std::jthread exchanger_, guard_;  // last: they use the others
};

ForeignWatch::ForeignWatch(Store& store, ForeignWatchOptions options)
    : loop_(std::make_unique<Loop>(store, std::move(options))) {}

ForeignWatch::~ForeignWatch() { loop_->stop(); }

void ForeignWatch::leave(Milliseconds most) { loop_->leave(most); }

void ForeignWatch::wait_for_cause() { loop_->wait_for_cause(); }

void ForeignWatch::fail(const std::string& message) { loop_->fail(message); }

}  // namespace skein::launch
