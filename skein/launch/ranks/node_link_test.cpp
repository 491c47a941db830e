// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/node_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "skein/control/store_server.h"
#include "skein/control/testing.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct NodeLinkTest : testing::Test {
  const control::Secret shared = control::make_secret();
  const std::string run = "run";
  std::promise<std::string> first_status;
  std::atomic<bool> told = false;
  std::unique_ptr<control::StoreServer> server = serve(run, control::free_port());

  std::unique_ptr<control::StoreServer> serve(const std::string& token, int port) {
    const control::StoreServerOptions options{
        .port = port,
        .nodes = 2,
        .guest_secret = shared,
        .token = token,
        .on_node_set = [this](int, const std::string& key, const std::string& value) {
          if (key == status_key(1) && !told.exchange(true)) first_status.set_value(value);
        }};
    return std::make_unique<control::StoreServer>(control::secret_of_run(shared, token), options);
  }

  NodeLinkOptions options() const {
    return {.host = "127.0.0.1",
            .port = server->port(),
            .silence = milliseconds(1000),
            .tell_every = milliseconds(50),
            .join_timeout = seconds(20),
            .secret = [this] { return shared; }};
  }
  static void wait_until(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(holds());
  }
};

TEST_F(NodeLinkTest, TellsAndHears) {
  NodeLink link(options());
  NodeStatus status;
  status.node = 1;
  status.host = "here";
  link.report(status);
  EXPECT_EQ(decode_status(first_status.get_future().get())->host, "here");
  wait_until([&] { return link.token() == run; });
  EXPECT_EQ(link.secret(), control::secret_of_run(shared, run));
  EXPECT_EQ(link.command().order, Order::kWait);
  // Two commands in a row: the newest is what counts.
  server->set(command_key(1), encode(NodeCommand{.order = Order::kRun}));
  server->set(command_key(2), encode(NodeCommand{.order = Order::kQuit, .code = 7}));
  wait_until([&] { return link.command().order == Order::kQuit; });
  EXPECT_EQ(link.command().code, 7);
  EXPECT_FALSE(link.head_lost());
}

TEST_F(NodeLinkTest, MissesAStoreThatIsGone) {
  NodeLink link(options());
  link.report({});
  wait_until([&] { return link.token().has_value(); });
  server.reset();
  wait_until([&] { return link.command(), link.head_lost().has_value(); });
  EXPECT_EQ(link.head_lost()->code, 3);
  EXPECT_NE(link.head_lost()->why.find("has lost node 0"), std::string::npos)
      << link.head_lost()->why;
}

TEST_F(NodeLinkTest, IsOfNoOtherRun) {
  auto patient = options();
  patient.silence = seconds(60);  // so that it is no silence that ends it
  NodeLink link(patient);
  link.report({});
  wait_until([&] { return link.token().has_value(); });
  const int port = server->port();
  server.reset();
  server = serve("another", port);  // of the same machines, with the same secret file
  wait_until([&] { return link.head_lost().has_value(); });
  EXPECT_EQ(link.head_lost()->code, 3);
  EXPECT_NE(link.head_lost()->why.find("does not know this run's secret"), std::string::npos)
      << link.head_lost()->why;
}

// The first launcher ends; the second takes its place, and obeys nothing that was ordered before.
TEST_F(NodeLinkTest, ANodeIsStartedAgain) {
  auto first = std::make_unique<NodeLink>(options());
  wait_until([&] { return first->token().has_value(); });
  server->set(command_key(1), encode(NodeCommand{.order = Order::kRun}));
  server->set(kNewestCommandKey, "1");
  wait_until([&] { return first->command().order == Order::kRun; });
  first.reset();
  NodeLink second(options());
  second.report({});
  wait_until([&] { return second.token().has_value(); });
  server->set(command_key(2), encode(NodeCommand{.order = Order::kEnd, .generation = 4}));
  wait_until([&] {
    const auto order = second.command().order;
    EXPECT_NE(order, Order::kRun);
    return order == Order::kEnd;
  });
  server->set(kNewestCommandKey, "2");
  EXPECT_FALSE(second.head_lost());
}

// It learns that there is no run to join.
TEST_F(NodeLinkTest, ANodeThatComesTooLateIsSentAway) {
  server->set(command_key(1), encode(NodeCommand{.order = Order::kQuit, .code = 7}));
  server->set(kNewestCommandKey, "1");
  NodeLink link(options());
  wait_until([&] { return link.command().order == Order::kQuit; });
}

TEST_F(NodeLinkTest, ANumberIsTakenOnce) {
  NodeLink first(options());
  first.report({});
  wait_until([&] { return first.token().has_value(); });
  const NodeLink second(options());
  wait_until([&] { return second.head_lost().has_value(); });
  EXPECT_EQ(second.head_lost()->code, 2);
  EXPECT_FALSE(first.head_lost());
}

TEST_F(NodeLinkTest, ASecretThatComesLateIsTriedAgain) {
  auto late = options();
  std::atomic<int> asked = 0;
  late.secret = [&] { return ++asked < 3 ? control::make_secret() : shared; };
  const NodeLink link(late);
  wait_until([&] { return link.token().has_value(); });
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace skein::launch
