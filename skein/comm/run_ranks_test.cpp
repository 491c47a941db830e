// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What run_ranks() says of ranks that do not make the same calls.

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>

#include "skein/comm/group.h"
#include "skein/core/error.h"
#include "skein/core/store.h"
#include "skein/core/testing.h"

namespace skein::comm {
namespace {

TEST(RunRanks, RethrowsTheCauseAndNotItsConsequences) {
  const auto message = refusal<UserError>([] {
    run_ranks(3, [](Group& group) {
      if (group.rank() == 2) throw UserError("no such file");
      group.barrier();
    });
  });
  EXPECT_EQ(message, "no such file");
}

TEST(RunRanks, ARankThatReturnsEarlyIsNamed) {
  const auto message = refusal<CommError>([] {
    run_ranks(2, [](Group& group) {
      if (group.rank() == 0) group.all_reduce(at::zeros({4})).wait();
    });
  });
  EXPECT_EQ(message,
            "all_reduce of 16 bytes (Float) (collective 0) on rank 0 of 2 cannot end: rank 1 has "
            "returned");
}

TEST(RunRanks, AHostSumInsteadOfTensorsIsReported) {
  const auto message = refusal<CommError>([] {
    run_ranks(2, [](Group& group) {
      const auto whole = at::zeros({4});
      if (group.rank() == 0) group.all_reduce(whole).wait();
      if (group.rank() == 1) group.start_sum({int64_t{1}}).take();
    });
  });
  EXPECT_NE(message.find("all_reduce of 16 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("host sum of 8 bytes"), std::string::npos) << message;
}

TEST(RunRanks, DifferentCallsAreReported) {
  const auto message = refusal<CommError>([] {
    run_ranks(2, [](Group& group) {
      const auto whole = at::zeros({4});
      (group.rank() == 0 ? group.all_reduce(whole) : group.broadcast(whole, 1)).wait();
    });
  });
  EXPECT_NE(message.find("all_reduce of 16 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("broadcast from rank 1 of 16 bytes"), std::string::npos) << message;
}

TEST(RunRanks, DifferentSumsByNodeAreReported) {
  const auto message = refusal<CommError>([] {
    run_ranks(
        4,
        [](Group& group) {
          const auto whole = at::zeros({8});
          const auto shard = at::zeros({2});
          (group.rank() == 3 ? group.reduce_scatter(shard, whole) : group.all_reduce(whole)).wait();
        },
        std::chrono::minutes(1), /*local_size=*/2);
  });
  EXPECT_NE(message.find("all_reduce of 32 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("reduce_scatter of 32 bytes"), std::string::npos) << message;
}

// The late rank waits for the store's word, so that it is alive while the other gives up.
TEST(RunRanks, ALateRankIsNamed) {
  MemoryStore store;
  std::string message;
  run_ranks(
      2,
      [&](Group& group) {
        if (group.rank() == 1) return void(store.get("done", std::chrono::minutes(1)));
        message = refusal<CommError>([&] { group.all_reduce(at::zeros({4})).wait(); });
        store.set("done", "");
      },
      std::chrono::milliseconds(100));
  EXPECT_NE(message.find("rank 0 of 2 timed out after 0.1 s: waiting for rank 1"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace skein::comm
