// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/foreign_store.h"

#include <gtest/gtest.h>

#include <future>

#include "skein/control/socket.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ForeignStoreOptions served() {
  return {.host = "127.0.0.1", .serve = true, .one_machine = true, .prefix = "0/"};
}

std::unique_ptr<ForeignStore> join(const ForeignStore& server, const std::string& prefix = "0/") {
  return join_foreign_store(
      {.host = "127.0.0.1", .port = server.port(), .prefix = prefix, .timeout = seconds(20)});
}

bool contains(const std::exception& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

TEST(ForeignStore, SharesValuesAndCounters) {
  const auto server = join_foreign_store(served());
  const auto client = join(*server);
  client->set("name", std::string("a\0b", 3));
  EXPECT_EQ(server->get("name", seconds(20)), std::string("a\0b", 3));
  EXPECT_EQ(server->add("count", 2), 2);
  EXPECT_EQ(client->add("count", -5), -3);
  EXPECT_EQ(server->get("count", seconds(20)), "-3");
  EXPECT_EQ(client->try_get("absent"), std::nullopt);
  EXPECT_EQ(client->try_get("count"), "-3");
  EXPECT_TRUE(client->erase("count"));
  EXPECT_FALSE(client->erase("count"));
  EXPECT_EQ(server->try_get("count"), std::nullopt);
}

TEST(ForeignStore, PrefixesKeepStartsApart) {
  const auto server = join_foreign_store(served());
  const auto other = join(*server, "1/");
  server->set("name", "first");
  EXPECT_EQ(other->try_get("name"), std::nullopt);
}

TEST(ForeignStore, AWaitHoldsUpNoOtherThread) {
  const auto server = join_foreign_store(served());
  const auto client = join(*server);
  auto waiting = std::async(std::launch::async, [&] { return client->get("late", seconds(60)); });
  for (int i = 0; i < 20; ++i) client->add("turns", 1);
  EXPECT_EQ(waiting.wait_for(milliseconds(0)), std::future_status::timeout);
  client->set("late", "now");
  EXPECT_EQ(waiting.get(), "now");
}

TEST(ForeignStore, AWaitEndsAtItsDeadlineAndTheStoreStaysUsable) {
  const auto server = join_foreign_store(served());
  try {
    server->get("never", milliseconds(50));
    FAIL() << "a key that nobody sets was found";
  } catch (const CommError& error) {
    EXPECT_TRUE(contains(error, "'never'")) << error.what();
  }
  EXPECT_EQ(server->add("count", 1), 1);
}

TEST(ForeignStore, ATakenPortIsNamedWithWhatToType) {
  const auto other = control::listen_on("127.0.0.1", 0);
  auto options = served();
  options.port = control::local_port(other);
  try {
    join_foreign_store(options);
    FAIL() << "two servers on one port";
  } catch (const UserError& error) {
    EXPECT_TRUE(contains(error, std::to_string(options.port))) << error.what();
    EXPECT_TRUE(contains(error, "MASTER_PORT")) << error.what();
  }
}

TEST(ForeignStore, AnAbsentServerIsACommError) {
  const int port = control::local_port(control::listen_on("127.0.0.1", 0));
  EXPECT_THROW(
      join_foreign_store({.host = "127.0.0.1", .port = port, .timeout = milliseconds(200)}),
      CommError);
}

TEST(ForeignStore, ALostServerIsACommError) {
  auto server = join_foreign_store(served());
  const auto client = join(*server);
  client->set("a", "b");
  server.reset();
  EXPECT_THROW(client->add("count", 1), CommError);
}

}  // namespace
}  // namespace skein::comm
