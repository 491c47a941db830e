// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Many at once at the control port: those who belong to the run all get in, and nobody who is in
// waits for those who are not.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "skein/control/handshake.h"
#include "skein/control/socket.h"
#include "skein/control/store_client.h"
#include "skein/control/store_server.h"
#include "skein/control/testing.h"
#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/log_writer.h"

namespace skein::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Crowd, TwoThousandJoinAtOnceAndNoneIsLost) {
  constexpr uint32_t kSize = 2000;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  ASSERT_GT(limit.rlim_cur, 2 * kSize + 700) << "both ends of each connection are this process's";
  const auto secret = make_secret();
  const StoreServer server(secret, {.size = kSize});
  StoreClient watcher(secret, {.port = server.port()});
  std::latch all_ready(kSize);
  std::atomic<uint32_t> joined = 0;
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      all_ready.arrive_and_wait();
      try {
        StoreClient store(secret, {.port = server.port(), .rank = rank});
        store.add("joined", 1);
        ++joined;
        store.get("all", seconds(300));  // as ranks do, it stays connected
      } catch (const CommError& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (int i = 0; i < 6000 && joined < kSize; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(watcher.add("joined", 0), kSize);
  watcher.set("all", "");
  for (auto& rank : ranks) rank.join();
}

TEST(Crowd, AFloodOfStrangersStopsNoCallAndKeepsNobodyOut) {
  const auto secret = make_secret();
  const StoreServer server(secret, {.size = 100});
  // As a node that has lost node 0 when it hears nothing for so long.
  StoreClient member(secret, {.port = server.port(), .answer_timeout = milliseconds(3000)});
  std::atomic<bool> ended = false;
  std::atomic<uint64_t> tried = 0;
  std::vector<std::thread> strangers;
  for (int i = 0; i < 2; ++i) {
    strangers.emplace_back([&] { tried += flood(INADDR_LOOPBACK, server.port(), ended).tried; });
  }
  try {
    const auto until = Clock::now() + seconds(2);
    for (uint32_t rank = 1; Clock::now() < until; rank = rank % 99 + 1) {
      for (int i = 0; i < 20; ++i) member.add("calls", 1);
      StoreClient(secret, {.port = server.port(), .rank = rank}).add("joins", 1);
    }
  } catch (const CommError& error) {
    ADD_FAILURE() << error.what();
  }
  ended = true;
  for (auto& stranger : strangers) stranger.join();
  EXPECT_GT(tried, 1000U);
  EXPECT_GT(member.add("joins", 0), 0);
}

// Those who are left over wait in the port's queue.
TEST(Crowd, MissingDescriptorsAreNamedWithTheNumberNeeded) {
  const StoreServer server(make_secret(), {.size = 1000});
  const File client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  rlimit whole{};
  getrlimit(RLIMIT_NOFILE, &whole);
  std::string line;
  std::atomic<bool> said = false;
  // The limit goes first: UBSan looks at objects through pipes, and takes a missing one for damage.
  set_log_writer([&](std::string_view text) {
    setrlimit(RLIMIT_NOFILE, &whole);
    line = text;
    said = true;
  });
  rlimit none = whole;
  none.rlim_cur = 3;  // what is open stays open
  setrlimit(RLIMIT_NOFILE, &none);
  const int connected =
      connect(client.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (!said) std::this_thread::sleep_for(milliseconds(1));
  set_log_writer({});
  EXPECT_EQ(connected, 0);
  EXPECT_NE(line.find("3 open files"), std::string::npos) << line;
  EXPECT_NE(line.find("1000 ranks need 4515"), std::string::npos) << line;
  const auto deadline = Clock::now() + seconds(60);
  send_all(client, encode_hello({.rank = 1}, make_nonce()), deadline);
  EXPECT_EQ(receive_exactly(client, kChallengeSize, deadline).size(), kChallengeSize);
}

}  // namespace
}  // namespace skein::control
