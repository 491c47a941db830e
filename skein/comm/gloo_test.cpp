// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What ends a group over Gloo, and what does not; with tensors through shared memory and without.

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "skein/comm/c10d_error.h"
#include "skein/comm/testing.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::comm {
namespace {

class GlooTest : public testing::TestWithParam<bool> {
 protected:
  static GroupOptions two_ranks(std::chrono::milliseconds timeout) {
    return {.size = 2, .shared_memory = GetParam(), .timeout = timeout};
  }
};
INSTANTIATE_TEST_SUITE_P(Gloo, GlooTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "shared_memory" : "sockets");
});

TEST_P(GlooTest, ALatePeerIsACommErrorForThisAndEveryLaterCall) {
  MemoryStore store;
  std::string first, second;
  run_connected(two_ranks(std::chrono::milliseconds(500)), [&](Group& group) {
    if (group.rank() == 1) return void(store.get("done", std::chrono::minutes(1)));
    first = refusal<CommError>([&] { group.all_reduce(at::zeros({4})).wait(); });
    second = refusal<CommError>([&] { group.barrier(); });
    store.set("done", "");
  });
  EXPECT_NE(first.find("all_reduce of 16 bytes on rank 0 of 2 failed after"), std::string::npos)
      << first;
  EXPECT_NE(second.find("was not begun: all_reduce of 16 bytes"), std::string::npos) << second;
}

// Rank 1 comes to the all_reduce once it has the sum that rank 0 started behind it. (No program may
// order its calls so: launchers compare them.)
TEST_P(GlooTest, HostSumsDoNotQueueBehindTensors) {
  run_connected(two_ranks(std::chrono::seconds(10)), [](Group& group) {
    const auto whole = at::full({2}, 1.0F);
    Work work;
    if (group.rank() == 0) work = group.all_reduce(whole);
    EXPECT_EQ(group.sum(int64_t{1}), 2);
    if (group.rank() == 1) work = group.all_reduce(whole);
    work.wait();
    EXPECT_TRUE(at::equal(whole, at::full({2}, 2.0F)));
  });
}

TEST_P(GlooTest, AHostSumThatAPeerMissesNamesItself) {
  std::string message, later;
  run_connected(two_ranks(std::chrono::minutes(1)), [&](Group& group) {
    if (group.rank() == 1) return;
    auto sum = group.start_sum({int64_t{1}});
    message = refusal<CommError>([&] { sum.take(); });
    later = refusal<CommError>([&] { group.all_reduce(at::zeros({4})).wait(); });
  });
  EXPECT_NE(message.find("host sum of 16 bytes on rank 0 of 2 failed after"), std::string::npos)
      << message;
  EXPECT_NE(later.find("all_reduce of 16 bytes on rank 0 of 2 was not begun: host sum"),
            std::string::npos)
      << later;
}

TEST_P(GlooTest, APeerThatLeftIsACommError) {
  std::string message;
  run_connected(two_ranks(std::chrono::minutes(1)), [&](Group& group) {
    if (group.rank() == 1) return;
    message = refusal<CommError>([&] { group.all_reduce(at::zeros({4})).wait(); });
  });
  EXPECT_NE(message.find("all_reduce of 16 bytes on rank 0 of 2"), std::string::npos) << message;
  EXPECT_EQ(message.find(".cc:"), std::string::npos) << message;
}

TEST(Gloo, MessagesNameNoSourceFiles) {
  EXPECT_EQ(without_source_files("[/a b/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
                                 "[127.0.0.1]:4242"),
            "Connection closed by peer [127.0.0.1]:4242");
  EXPECT_EQ(without_source_files("[enforce fail at /x/gloo/pair.cc:1] a <= b. 64 vs 16"),
            "a <= b. 64 vs 16");
  EXPECT_EQ(without_source_files("peer [10.0.0.1]:7 said: no"), "peer [10.0.0.1]:7 said: no");
}

TEST(Gloo, AMissingRankIsACommErrorAtTheStart) {
  MemoryStore store;
  const auto message = refusal<CommError>(
      [&] { connect({.size = 2, .timeout = std::chrono::milliseconds(200)}, store); });
  EXPECT_NE(message.find("rank 0 of 2 could not join the others on 127.0.0.1"), std::string::npos)
      << message;
  EXPECT_EQ(message.find("firewall"), std::string::npos) << message;
}

TEST(Gloo, BetweenMachinesAFirewallIsThoughtOf) {
  MemoryStore store;
  const GroupOptions elsewhere{
      .size = 2, .address = "192.0.2.1", .timeout = std::chrono::milliseconds(200)};
  const auto message = refusal<CommError>([&] { connect(elsewhere, store); });
  EXPECT_NE(message.find("does a firewall between the machines close them?"), std::string::npos)
      << message;
}

// From here on this process gets no thread any more.
void let_threads_fail() {
  std::array<sock_filter, 4> program = {
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{program.size(), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    _exit(99);
  }
}

// The limit is this process's: neither a peer nor the network is to blame.
TEST(Gloo, ThreadsThatCannotBeHadAreNoCommError) {
  EXPECT_EXIT(
      {
        MemoryStore store;
        let_threads_fail();
        try {
          connect({.size = 2, .timeout = std::chrono::milliseconds(200)}, store);
        } catch (const std::system_error& error) {
          _exit(error.code() == std::errc::resource_unavailable_try_again ? 7 : 1);
        }
      },
      testing::ExitedWithCode(7), "");
}

TEST(Gloo, OneStoreServesSeveralGroups) {
  MemoryStore store;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&store, rank] {
      for (int round = 0; round < 3; ++round) {
        auto group = connect({.rank = rank, .size = 2, .timeout = std::chrono::minutes(1)}, store);
        EXPECT_EQ(group.sum(int64_t{round}), 2 * round);
        group.shutdown();
      }
    });
  }
}

}  // namespace
}  // namespace skein::comm
