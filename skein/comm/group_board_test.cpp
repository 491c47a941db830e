// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What a rank's board shows of its collectives.

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "skein/board/board.h"
#include "skein/comm/testing.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::comm {
namespace {

// Run in a process of its own: a board stays attached for good. The two ranks share it.
void write_calls_to_board() {
  const board::Board board(0);
  board::attach_board(board.descriptor());
  run_connected({.size = 2, .timeout = std::chrono::minutes(1)}, [](Group& group) {
    const auto whole = at::zeros({4}, at::TensorOptions(at::kBFloat16));
    if (group.rank() == 0) group.all_reduce(whole).wait();
    if (group.rank() == 1) group.all_reduce(whole).wait();
    group.sum(std::vector<double>{1, 2, 3});
    auto later = group.start_sum({int64_t{1}});
    group.barrier();
    later.take();
  });
  Group alone;
  alone.broadcast(at::zeros({7}), 0).wait();
  const auto view = board.read(16);
  for (const auto& call : view.calls) {
    fmt::print(stderr, "{}/{} {} {} {}\n", call.operation, call.count, call.dtype,
               call.site.substr(0, call.site.find(':')), call.done ? "done" : "open");
  }
  fmt::print(stderr, "phase {}\n", board::name_of(view.phase));
  std::_Exit(0);
}

TEST(GroupDeathTest, EveryCollectiveIsOnTheBoard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(write_calls_to_board(), testing::ExitedWithCode(0),
              "all_reduce/4 bfloat16 group_board_test.cpp done\n"
              "all_reduce/4 bfloat16 group_board_test.cpp done\n"
              "host sum/3 float64 group_board_test.cpp done\n"
              "host sum/3 float64 group_board_test.cpp done\n"
              "(host sum|barrier)/1 int64 group_board_test.cpp done\n"
              "(host sum|barrier)/1 int64 group_board_test.cpp done\n"
              "(host sum|barrier)/1 int64 group_board_test.cpp done\n"
              "barrier/1 int64 group_board_test.cpp done\n"
              "broadcast from rank 0/7 float32 group_board_test.cpp done\n"
              "phase ending");
}

// Streams wait for NCCL's works, the host does not: a watcher sees their end.
void write_nccl_calls_to_board() {
  const board::Board board(0);
  board::attach_board(board.descriptor());
  size_t open = 1;
  run_connected({.backend = "nccl", .device_index = 0}, [&](Group& group) {
    const auto whole = at::zeros({1 << 20}, at::TensorOptions(at::kFloat).device(at::kCUDA, 0));
    for (int i = 0; i < 300; ++i) group.all_reduce(whole).wait();
    for (int i = 0; i < 100 && open > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto calls = board.read(256).calls;
      open = static_cast<size_t>(std::ranges::count(calls, false, &board::Call::done));
    }
  });
  fmt::print(stderr, "{} issued, {} open\n", board.read().issued, open);
  std::_Exit(0);
}

TEST(GroupDeathTest, NcclCallsEndOnTheBoard) {
  const char* cuda = std::getenv("SKEIN_TEST_CUDA");
  if (cuda == nullptr || std::string(cuda) != "1") GTEST_SKIP() << "needs a GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(write_nccl_calls_to_board(), testing::ExitedWithCode(0), "300 issued, 0 open");
}

// Rank 1 leaves without the all_reduce: it is what rank 0 ends in.
void fail_a_call_on_board() {
  const board::Board board(0);
  board::attach_board(board.descriptor());
  run_connected({.size = 2, .timeout = std::chrono::minutes(1)}, [](Group& group) {
    if (group.rank() == 1) return;
    refusal<CommError>([&] { group.all_reduce(at::zeros({4})).wait(); });
  });
  const auto view = board.read();
  fmt::print(stderr, "{} calls, {}\n", view.calls.size(), view.calls.back().done ? "done" : "open");
  std::_Exit(0);
}

TEST(GroupDeathTest, AFailedCallStaysOpenOnTheBoard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fail_a_call_on_board(), testing::ExitedWithCode(0), "1 calls, open");
}

}  // namespace
}  // namespace skein::comm
