// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Strangers at the control port, in numbers and with a plan: none is believed, and those who belong
// to the run notice nothing. Single refusals are in store_test.cpp; a whole run under attack is
// tests/ranks/hostile_test.py.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "skein/control/handshake.h"
#include "skein/control/socket.h"
#include "skein/control/store_client.h"
#include "skein/control/store_server.h"
#include "skein/core/error.h"

namespace skein::control {
namespace {

constexpr uint32_t kHostileRanks = 4;

struct HostileStore : testing::Test {
  Secret secret = make_secret();
  StoreServer server{secret, {.size = kHostileRanks, .generation = 3}};
  Deadline deadline = Clock::now() + std::chrono::seconds(60);

  StoreClient join(uint32_t rank) {
    return {secret, {.port = server.port(), .rank = rank, .generation = 3}};
  }
  File connect() const { return connect_to("127.0.0.1", server.port(), deadline); }
  // A closed connection reads as empty or as reset, depending on what was on its way.
  bool is_closed(const File& socket) const try {
    while (!receive_some(socket, 4096, deadline).empty()) {
    }
    return true;
  } catch (const CommError&) {
    return Clock::now() < deadline;
  }
};

// Both ends of a connection are this process's here.
size_t affordable_connections(size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<size_t>(wanted, limit.rlim_cur - 400);
}

// X10. Ranks come and go while the port is flooded; some strangers say nothing, some say hello.
TEST_F(HostileStore, ThousandsOfConnectionsKeepNobodyOutAndStopNoCall) {
  const size_t num_strangers = affordable_connections(3000);
  std::atomic<bool> flooding = true;
  auto old_friend = join(0);
  std::thread flood([&] {
    std::vector<File> strangers;
    for (size_t i = 0; i < num_strangers; ++i) {
      strangers.push_back(connect());
      if (i % 3 == 0) {
        send_all(strangers.back(), encode_hello({.rank = 1, .generation = 3}, make_nonce()),
                 deadline);
      }
    }
    flooding = false;
    for (const auto& stranger : strangers) EXPECT_TRUE(is_closed(stranger));
  });
  int64_t calls = 0;
  while (flooding) {
    old_friend.add("calls", 1);
    join(1).add("calls", 1);
    calls += 2;
  }
  EXPECT_EQ(join(2).add("calls", 0), calls);
  flood.join();
  EXPECT_EQ(old_friend.add("calls", 0), calls);
}

// X10. A stranger is read to 56 bytes, whatever it sends and however much.
TEST_F(HostileStore, AMountainOfBytesIsNotRead) {
  const auto stranger = connect();
  const std::string junk(1 << 20, '\xff');
  EXPECT_THROW(while (Clock::now() < deadline) send_all(stranger, junk, deadline), CommError);
  EXPECT_LT(Clock::now(), deadline);
}

// X11. The one who comes first under a rank's number is not that rank.
TEST_F(HostileStore, AFakeRankThatJoinsFirstIsRefusedAndTheRealOneJoins) {
  std::vector<File> fakes;
  for (uint32_t rank = 0; rank < kHostileRanks; ++rank) {
    auto socket = connect();
    const auto hello = encode_hello({.rank = rank, .generation = 3}, make_nonce());
    send_all(socket, hello, deadline);
    const auto challenge = receive_exactly(socket, kChallengeSize, deadline);
    const Transcript guess(make_secret(), hello, challenge.substr(0, kNonceSize));
    // The store's own proof, sent back, proves nothing either.
    send_all(socket, rank % 2 == 0 ? guess.rank_proof() : challenge.substr(kNonceSize), deadline);
    FrameSealer sealer(guess.key_to_store());
    send_all(socket, sealer.seal(encode({.operation = StoreOperation::kSet, .key = "fake"})),
             deadline);
    fakes.push_back(std::move(socket));
  }
  for (const auto& fake : fakes) EXPECT_TRUE(is_closed(fake));
  for (uint32_t rank = 0; rank < kHostileRanks; ++rank) EXPECT_EQ(join(rank).add("n", 1), rank + 1);
  EXPECT_EQ(join(0).try_get("fake"), std::nullopt);
}

// A stranger who took the store's port learns the nonce of the rank that calls there, and no proof.
TEST(HostilePort, AFakeStoreIsToldNothing) {
  const auto listener = listen_on("127.0.0.1", 0);
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  std::atomic<bool> ended = false;
  size_t proofs = 0;
  std::thread fake([&] {
    while (!ended) {
      const auto socket = accept_one(listener);
      if (!socket) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      receive_exactly(socket, kHelloSize, deadline);
      send_all(socket, std::string(kChallengeSize, 'c'), deadline);
      try {
        proofs += receive_some(socket, kProofSize, deadline).size();
      } catch (const CommError&) {  // reset: nothing was told
      }
    }
  });
  EXPECT_THROW(StoreClient(make_secret(), {.port = local_port(listener)}), CommError);
  ended = true;
  fake.join();
  EXPECT_EQ(proofs, 0U);
}

}  // namespace
}  // namespace skein::control
