// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/hostfile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/testing.h"
#include "skein/launch/placement/detect.h"

namespace skein::launch {
namespace {

std::string show_hosts(const std::vector<Host>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    text += text.empty() ? "" : " ";
    text += host.name + ":";
    for (const int slot : host.slots) text += std::to_string(slot);
  }
  return text;
}

TEST(Hostfile, ReadsDeepSpeedsLines) {
  const auto hosts = parse_hostfile(
      "# cluster\n\nworker-1 slots=2 # the first\r\n  me@worker_2.lan\tslots=3\n", "hosts");
  EXPECT_EQ(show_hosts(hosts), "worker-1:01 me@worker_2.lan:012");
}

// A small file must not ask for gigabytes.
TEST(Hostfile, HasAMillionSlotsAtMost) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("h{} slots=4096\n", i);
  EXPECT_THROW(parse_hostfile(text, "hosts"), UserError);
  EXPECT_EQ(parse_hostfile(text.substr(0, text.find("h256 ")), "hosts").size(), 256U);
}

TEST(Hostfile, RefusesWithFileAndLine) {
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"a slots=1\na slots=2\n", "hosts:2: host 'a' twice"},
      {"a slots=1\nme@a slots=2\n", "hosts:2: host 'me@a' twice"},
      {"-oProxyCommand=x slots=1\n", "hosts:1: '-oProxyCommand=x' is no host name"},
      {"me@-oProxyCommand slots=1\n", "is no host name"},
      {"-l@a slots=1\n", "is no host name"},
      {"a;rm slots=1\n", "'a;rm' is no host name"},
      {"a$(id) slots=1\n", "is no host name"},
      {"a@b@c slots=1\n", "is no host name"},
      {"\na\n", "hosts:2: expected `host slots=N`"},
      {"a slots=0\n", "expected `host slots=N`"},
      {"a slots=x\n", "expected `host slots=N`"},
      {"a slots=99999\n", "expected `host slots=N`"},
      {"a slots=1 b\n", "expected `host slots=N`"},
      {"# nothing\n", "hosts names no host"},
  };
  for (const auto& [text, says] : refused) {
    EXPECT_PRED2(contains, skein::refusal<UserError>([&] { parse_hostfile(text, "hosts"); }), says);
  }
  EXPECT_THROW(read_hostfile("/nonexistent/hosts"), UserError);
}

TEST(Hostfile, IncludeAndExclude) {
  const auto hosts = parse_hostfile("a slots=4\nme@b slots=4\nc slots=2\n", "hosts");
  const auto choose = [&](std::string include, std::string exclude, int most) {
    return show_hosts(choose_hosts(
        hosts, {.include = std::move(include), .exclude = std::move(exclude), .most = most}));
  };
  EXPECT_EQ(choose("", "", 0), "a:0123 me@b:0123 c:01");
  EXPECT_EQ(choose("", "", 2), "a:0123 me@b:0123");
  EXPECT_EQ(choose("a:0,2@c", "", 0), "a:02 c:01");
  EXPECT_EQ(choose("b:3", "", 0), "me@b:3");
  EXPECT_EQ(choose("", "a@b:1", 0), "me@b:023 c:01");
  EXPECT_EQ(choose("", "a:0,1,2,3", 1), "me@b:0123");
}

TEST(Hostfile, ChoicesThatAreRefused) {
  const auto hosts = parse_hostfile("a slots=2\nb slots=2\n", "hosts");
  struct Refused {
    HostChoice choice;
    const char* says;
  };
  const std::vector<Refused> refused = {
      {{.include = "a", .exclude = "b", .most = 0}, "only one of them"},
      {{.include = "d", .exclude = "", .most = 0}, "unknown host 'd' (known: a, b)"},
      {{.include = "a:2", .exclude = "", .most = 0}, "host 'a' has no slot '2' (it has 0,1)"},
      {{.include = "a:", .exclude = "", .most = 0}, "has no slot ''"},
      {{.include = "a:0,0", .exclude = "", .most = 0}, "slot 0 of host 'a' twice"},
      {{.include = "a:0@a:1", .exclude = "", .most = 0}, "host 'a' twice"},
      {{.include = "", .exclude = "a@b", .most = 0}, "leaves nothing"},
      {{.include = "", .exclude = "-oX", .most = 0}, "is no host name"},
      {{.include = "", .exclude = "", .most = 3}, "3 nodes are asked for, but there are 2"},
  };
  for (const auto& [choice, says] : refused) {
    EXPECT_PRED2(contains, skein::refusal<UserError>([&] { choose_hosts(hosts, choice); }), says);
  }
}

class HostfileStart : public ::testing::Test {
 protected:
  ~HostfileStart() override { fs::remove(path); }
  LaunchPlan start(const std::string& hosts, std::vector<std::string> flags,
                   const Environment& environment = {}) {
    write_file_atomically(path, hosts);
    flags.push_back("--hostfile=" + path.string());
    return detect({.flags = split_launch_flags(flags).flags,
                   .environment = environment,
                   .hardware = {.gpus = 0, .gpu_problem = "", .cores = 8}});
  }
  std::string refusal(const std::string& hosts, const std::vector<std::string>& flags,
                      const Environment& environment = {}) {
    return skein::refusal<UserError>([&] { start(hosts, flags, environment); });
  }
  fs::path path = fs::temp_directory_path() / fmt::format("skein-hosts-{}", getpid());
};

TEST_F(HostfileStart, OverSsh) {
  const auto plan = start("me@a.lan slots=2\nb slots=2\n", {"--ssh-port=2222"});
  EXPECT_EQ(show_hosts(plan.hosts), "me@a.lan:01 b:01");
  EXPECT_EQ(plan.nodes, 2);
  EXPECT_EQ(plan.local_ranks, 2);
  EXPECT_EQ(plan.master_addr, "a.lan");
  EXPECT_EQ(plan.master_port, 29500);
  EXPECT_EQ(plan.ssh_port, 2222);
  EXPECT_EQ(show_hosts(start("a slots=4\nb slots=2\n", {"--num-gpus=2"}).hosts), "a:01 b:01");
  EXPECT_EQ(show_hosts(start("a slots=2\nb slots=2\nc slots=1\n", {"--num_nodes=2"}).hosts),
            "a:01 b:01");
}

TEST_F(HostfileStart, WithoutSsh) {
  auto plan = start("a slots=2\nb slots=2\n", {"--no_ssh", "--node_rank=1"});
  EXPECT_TRUE(plan.hosts.empty());
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.master_addr, "a");
  EXPECT_EQ(plan.local_ranks, 2);
  plan = start("localhost slots=3\n", {});
  EXPECT_TRUE(plan.hosts.empty());
  EXPECT_EQ(plan.nodes, 1);
  EXPECT_EQ(plan.local_ranks, 3);
}

TEST_F(HostfileStart, Refused) {
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal("a slots=2\nb slots=4\n", {}), "every node runs the same number"));
  EXPECT_TRUE(says(refusal("a slots=2\nb slots=2\n", {"--node-rank=1"}), "add --no-ssh"));
  EXPECT_TRUE(says(refusal("a slots=2\nb slots=2\n", {"--no-ssh"}), "which of the nodes"));
  EXPECT_TRUE(says(refusal("a slots=2\nb slots=2\n", {}, {{"NNODES", "3"}}), "NNODES=3 and"));
  EXPECT_TRUE(says(refusal("a slots=2\nb slots=2\n", {"--num-gpus=3"}), "has 2 slot(s)"));
  EXPECT_TRUE(says(refusal("-oX=1 slots=2\n", {}), ":1: '-oX=1' is no host name"));
}

}  // namespace
}  // namespace skein::launch
