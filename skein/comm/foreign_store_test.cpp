// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/foreign_store.h"

#include <gtest/gtest.h>

#include <future>

#include "skein/control/socket.h"
#include "skein/control/testing.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

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
  EXPECT_PRED2(contains, refusal<CommError>([&] { server->get("never", milliseconds(50)); }),
               "'never'");
  EXPECT_EQ(server->add("count", 1), 1);
}

TEST(ForeignStore, ATakenPortIsNamedWithWhatToType) {
  const auto other = control::listen_on("127.0.0.1", 0);
  auto options = served();
  options.port = control::local_port(other);
  const auto text = refusal<UserError>([&] { join_foreign_store(options); });
  EXPECT_PRED2(contains, text, std::to_string(options.port));
  EXPECT_PRED2(contains, text, "MASTER_PORT");
}

TEST(ForeignStore, AnAbsentServerIsACommError) {
  const int port = control::free_port();
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
