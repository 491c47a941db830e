// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/board/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>
#include <tuple>

#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::board {
namespace {

uint64_t begin_plain_call() {
  return begin_call("world", "all_gather", "float32", 4096, "a.cpp:1");
}

// Each part of a call follows from its number: a mixture of two calls shows.
uint64_t begin_numbered_call(uint64_t sequence) {
  return begin_call(fmt::format("group{}", sequence % 3), fmt::format("op{}", sequence % 7),
                    fmt::format("type{}", sequence % 5), 3 * sequence,
                    fmt::format("file.cpp:{}", sequence));
}

bool is_whole(const Call& call) {
  const auto n = call.sequence;
  return call.group == fmt::format("group{}", n % 3) &&
         call.operation == fmt::format("op{}", n % 7) &&
         call.dtype == fmt::format("type{}", n % 5) && call.count == 3 * n &&
         call.site == fmt::format("file.cpp:{}", n);
}

std::vector<uint64_t> sequences_of(const BoardView& view) {
  std::vector<uint64_t> sequences;
  for (const auto& call : view.calls) sequences.push_back(call.sequence);
  return sequences;
}

bool wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

// A process that writes to the board until it is killed.
class WritingProcess {
 public:
  WritingProcess(const Board& board, const std::function<void()>& write) : pid_(fork()) {
    if (pid_ != 0) return;
    attach_board(board.descriptor());
    for (;;) write();
  }
  ~WritingProcess() { end(); }
  WritingProcess(const WritingProcess&) = delete;
  WritingProcess& operator=(const WritingProcess&) = delete;

  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

TEST(BoardDeathTest, WithoutAPageNothingHappens) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: this one may have a page
  EXPECT_EXIT(
      {
        const uint64_t call = begin_plain_call();
        end_call(call);
        enter_phase(Phase::kSave);
        set_board_step(3, {});
        {
          const HostWork work("nothing");
        }
        _exit(call == 0 && !has_board() && !own_board() ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

TEST(Board, ShowsWhatTheRankWrites) {
  const Board board(3);
  EXPECT_EQ(board.read().rank, 3);
  EXPECT_EQ(board.read().pid, 0);
  attach_board(board.descriptor());
  EXPECT_TRUE(has_board());

  enter_phase(Phase::kBackward);
  const uint64_t before_any_step = begin_plain_call();
  const std::vector<int64_t> samples{5, 7, 11};
  set_board_step(41, samples);
  const uint64_t first = begin_plain_call(), second = begin_plain_call();
  end_call(before_any_step);
  end_call(first);
  report_progress("writing checkpoint-10");
  report_failure("no memory");
  EXPECT_FALSE(board.read().out_of_memory);
  report_out_of_memory();

  const auto view = board.read();
  EXPECT_EQ(view.pid, getpid());
  EXPECT_EQ(view.phase, Phase::kBackward);
  EXPECT_EQ(view.step, 41);
  EXPECT_EQ(view.steps_here, 0);
  EXPECT_EQ(view.samples, samples);
  EXPECT_EQ(view.progress, "writing checkpoint-10");
  EXPECT_EQ(view.message, "no memory");
  EXPECT_TRUE(view.out_of_memory);
  EXPECT_EQ(view.issued, second);
  ASSERT_EQ(view.calls.size(), 3U);
  EXPECT_EQ(describe(view.calls[0]), "call #1, all_gather of 4096 float32 (a.cpp:1)");
  EXPECT_EQ(describe(view.calls[1]), "call #2, all_gather of 4096 float32 (step 42, a.cpp:1)");
  EXPECT_TRUE(view.calls[1].done);
  EXPECT_FALSE(view.calls[2].done);
  EXPECT_EQ(view.gaps_ms.size(), 2U);
  set_board_step(42, samples);
  EXPECT_EQ(own_board()->steps_here, 1);
}

TEST(Board, LongTextsAndManySamplesAreCut) {
  const Board board(0);
  attach_board(board.descriptor());
  const std::string endless(5000, 'x');
  std::vector<int64_t> samples(1000);
  std::iota(samples.begin(), samples.end(), 0);
  set_board_step(0, samples);
  report_failure(endless);
  begin_call(endless, endless, endless, 1, endless);
  const auto view = board.read();
  EXPECT_EQ(view.samples.size(), 64U);
  EXPECT_EQ(view.message, endless.substr(0, 1023));
  EXPECT_EQ(view.calls[0].group, endless.substr(0, 15));
  EXPECT_EQ(view.calls[0].site, endless.substr(0, 47));
}

TEST(Board, TheRingKeepsTheNewestAndAllThatAreUnderWay) {
  const Board board(0);
  attach_board(board.descriptor());
  const uint64_t open = begin_plain_call();
  for (int i = 0; i < 999; ++i) end_call(begin_plain_call());
  EXPECT_EQ(sequences_of(board.read(3)), (std::vector<uint64_t>{open, 998, 999, 1000}));
  const auto whole = board.read(10'000);
  EXPECT_EQ(whole.calls.size(), 256U);
  EXPECT_EQ(whole.issued, 1000U);
  end_call(open);
  EXPECT_EQ(sequences_of(board.read(1)), (std::vector<uint64_t>{1000}));
}

TEST(Board, TheOldestOfTooManyCallsUnderWayStay) {
  const Board board(0);
  attach_board(board.descriptor());
  for (int i = 0; i < 300; ++i) begin_plain_call();
  auto view = board.read();
  EXPECT_EQ(view.issued, 300U);
  ASSERT_EQ(view.calls.size(), 256U);
  EXPECT_EQ(view.calls.front().sequence, 1U);
  EXPECT_EQ(view.calls.back().sequence, 256U);
  for (uint64_t i = 1; i <= 300; ++i) end_call(i);  // those without a place too
  end_call(begin_plain_call());
  view = board.read(1000);
  EXPECT_TRUE(std::ranges::all_of(view.calls, &Call::done));
  EXPECT_EQ(view.calls.back().sequence, 301U);
}

TEST(Board, IsReadWholeWhileThreadsWrite) {
  const Board board(0);
  attach_board(board.descriptor());
  std::atomic<bool> stop = false;
  std::jthread caller([&] {
    for (uint64_t n = 1; !stop; ++n) {
      if (begin_numbered_call(n) != n) return;
      if (n > 2) end_call(n - 2);
    }
  });
  std::jthread talker([&] {
    for (uint64_t n = 0; !stop; ++n) {
      report_progress(std::string(n % 100, static_cast<char>('a' + n % 26)));
      set_board_step(static_cast<int64_t>(n),
                     std::vector<int64_t>(n % 64, static_cast<int64_t>(n)));
    }
  });
  const auto is_whole_view = [](const BoardView& view) {
    const auto& [text, samples] = std::tie(view.progress, view.samples);
    return std::ranges::all_of(view.calls, is_whole) &&
           std::ranges::is_sorted(view.calls, {}, &Call::sequence) &&
           std::ranges::all_of(text, [&](char c) { return c == text[0]; }) &&
           std::ranges::all_of(samples, [&](int64_t sample) { return sample == samples[0]; });
  };
  int torn = 0;
  for (int reads = 0; reads < 1000 || board.read().issued < 5000; ++reads) {
    torn += is_whole_view(board.read(256)) ? 0 : 1;
  }
  stop = true;
  EXPECT_EQ(torn, 0);
}

TEST(Board, IsReadWholeAfterTheRankWasKilled) {
  for (int round = 0; round < 10; ++round) {
    const Board board(round);
    uint64_t next = 1;
    WritingProcess writer(board, [&] { end_call(begin_numbered_call(next++)); });
    ASSERT_TRUE(wait_for([&] { return board.read().issued > 500; }));
    writer.end();
    const auto view = board.read(256);
    EXPECT_GE(view.calls.size(), 254U);  // one may have been cut off
    EXPECT_TRUE(std::ranges::all_of(view.calls, is_whole));
    EXPECT_NE(view.pid, getpid());
  }
}

TEST(Board, TheHeartStopsWithTheProcess) {
  const Board board(0);
  WritingProcess rank(board, [] { pause(); });
  const auto beats = [&] { return board.read().pid != 0 && board.read().beat_ms < 100; };
  ASSERT_TRUE(wait_for(beats));
  kill(rank.pid(), SIGSTOP);
  EXPECT_TRUE(wait_for([&] { return board.read().beat_ms > 500; }));
  kill(rank.pid(), SIGCONT);
  EXPECT_TRUE(wait_for(beats));
}

TEST(Board, TheHeartbeatTakesNoSignals) {
  const Board board(0);
  attach_board(board.descriptor());
  int blocked = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const uint64_t mask = std::stoull(line.substr(7), nullptr, 16);
      blocked += (mask >> (SIGTERM - 1) & 1U) != 0 && (mask >> (SIGUSR1 - 1) & 1U) != 0;
    }
  }
  EXPECT_GE(blocked, 1);
}

TEST(Board, HostWorkThatComputesIsProgress) {
  const Board board(0);
  attach_board(board.descriptor());
  const HostWork work("initialising");
  EXPECT_EQ(board.read().progress, "initialising");
  // An age that falls was renewed: by the heartbeat, since nobody else writes.
  int64_t oldest = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool renewed = false;
  while (!renewed && std::chrono::steady_clock::now() < give_up) {
    const int64_t age = board.read().progress_ms;
    renewed = age < oldest;
    oldest = std::max(oldest, age);
  }
  EXPECT_TRUE(renewed);
}

TEST(Board, NoAgeGrowsByAPause) {
  Board board(0);
  attach_board(board.descriptor());
  begin_call("world", "all_gather", "float32", 1, "here");
  const auto before = Clock::now();
  board.forgive(-std::chrono::hours(1));  // as if it had been issued an hour ago …
  EXPECT_GE(board.read().calls.front().age_ms, 3'600'000);
  EXPECT_GE(board.read().progress_ms, 3'600'000);
  EXPECT_GE(Clock::now() - before, std::chrono::hours(1)) << "the rank's own clock";
  board.forgive(std::chrono::hours(1));  // … of which the rank was stopped for one
  EXPECT_LT(board.read().calls.front().age_ms, 3'600'000);
  EXPECT_LT(board.read().progress_ms, 3'600'000);
  EXPECT_LT(Clock::now() - before, std::chrono::hours(1));
}

class BoardFile : public testing::Test {
 protected:
  void SetUp() override { folder = make_temporary_folder("board"); }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST_F(BoardFile, IsReadByOthers) {
  attach_board_file(folder / "rank-5.board", 5);
  begin_plain_call();
  const auto old = Board::open_file(folder / "rank-5.board");
  EXPECT_EQ(old.read().rank, 5);
  EXPECT_EQ(old.read().calls.size(), 1U);
  attach_board_file(folder / "rank-5.board", 5);  // another start
  begin_plain_call();
  begin_plain_call();
  EXPECT_EQ(old.read().calls.size(), 1U);
  EXPECT_EQ(Board::open_file(folder / "rank-5.board").read().calls.size(), 2U);
}

TEST_F(BoardFile, OthersAreRefused) {
  const auto path = folder / "none";
  EXPECT_THROW(Board::open_file(path), IoError);
  write_file_atomically(path, "short");
  EXPECT_THROW(Board::open_file(path), IoError);
  attach_board_file(folder / "board", 0);
  write_file_atomically(path, std::string(fs::file_size(folder / "board"), '\7'));
  EXPECT_THROW(Board::open_file(path), IoError);
  const File file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_THROW(attach_board(file.descriptor()), IoError);
  EXPECT_THROW(attach_board_file(folder / "missing" / "board", 0), IoError);
}

BoardView full_view() {
  BoardView view{.rank = 7,
                 .pid = 1234,
                 .phase = Phase::kEnding,
                 .step = 40,
                 .steps_here = 4,
                 .phase_ms = 5,
                 .beat_ms = 6,
                 .progress_ms = 8,
                 .progress = "p\"\n",
                 .message = "über",
                 .out_of_memory = true,
                 .samples = std::vector<int64_t>(64, 9'000'000'000),
                 .issued = 99,
                 .calls = {},
                 .gaps_ms = std::vector<int64_t>(255, 3)};
  for (uint64_t i = 0; i < 256; ++i) {
    view.calls.push_back({i + 1, "world", "all_gather", "bfloat16", i, 41, "x.cpp:1", 12, i < 250});
  }
  return view;
}

TEST(BoardJson, ComesBackAsItWas) {
  const auto view = full_view();
  const auto text = encode(view);
  EXPECT_LT(text.size(), size_t{64} << 10);
  const auto back = decode_board(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), text);
  EXPECT_EQ(back->calls.size(), 256U);
  EXPECT_EQ(back->message, "über");
  EXPECT_TRUE(back->out_of_memory);
  EXPECT_EQ(back->phase, Phase::kEnding);
}

TEST(BoardJson, AMessageMayBeCutWithinACharacter) {
  BoardView view;
  view.message = std::string(1023, '\xc3');
  EXPECT_TRUE(decode_board(encode(view)));
}

TEST(BoardJson, WhatIsNoBoardIsNothing) {
  const auto text = encode(full_view());
  const auto with = [&](const std::string& from, const std::string& to) {
    auto changed = text;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  const std::vector<std::string> hostile{
      "",
      "null",
      "[]",
      "{}",
      "7",
      std::string(100'000, '['),
      std::string(300'000, ' ') + text,
      text.substr(0, text.size() / 2),
      with("\"rank\":7", "\"rank\":-1"),
      with("\"rank\":7", "\"rank\":3000000000"),
      with("\"rank\":7", "\"rank\":1.5"),
      with("\"rank\":7", "\"rank\":\"7\""),
      with("\"rank\":7", "\"crank\":7"),
      with("\"phase\":12", "\"phase\":13"),
      with("\"step\":40", "\"step\":18446744073709551615"),
      with("\"step\":40", "\"step\":null"),
      with("\"step\":40", "\"step\":40,\"step\":40"),
      with("\"step\":40", "\"deep\":[[[[]]]],\"step\":40"),
      with("\"step\":40", "\"more\":0.5,\"step\":40"),
      text + '\0',
      with("[1,\"world\"", "[1,7"),
      with("[1,\"world\",", "[1,"),
      with("[1,\"world\"", "[1,\"" + std::string(5000, 'x') + "\""),
      with("\"samples\":[", "\"samples\":[1,"),
      with("\"samples\":[", "\"samples\":[[],"),
      with("\"calls\":[", "\"calls\":{},\"calls_\":["),
      with("\"gaps_ms\":[", "\"gaps_ms\":[1,2,"),
  };
  for (const auto& one : hostile) EXPECT_FALSE(decode_board(one)) << one.substr(0, 200);
}

}  // namespace
}  // namespace skein::board
