// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/node_identity.h"
#include "skein/core/testing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

namespace skein::launch {
namespace {

constexpr const char* kYaml =
    "learning_rate: 0.0003\nseed: 42\noutput_dir: \"out\"\ntrain_file: \"a.txt\"\n"
    "save_on_each_node: false\n";

std::vector<NodeIdentity> two_nodes() {
  std::vector<NodeIdentity> nodes(2);
  for (int i = 0; i < 2; ++i) {
    auto& node = nodes[static_cast<size_t>(i)];
    node = {.node = i,
            .host = i == 0 ? "host-a" : "host-b",
            .local_ranks = 2,
            .device = "cpu",
            .binary = "b0",
            .configuration = "",
            .configuration_text = "",
            .data = "d0",
            .output_dir = "/x/out",
            .output_problem = "",
            .sees_token = true};
    set_configuration(node, kYaml);
  }
  return nodes;
}

// What is said when the second node is changed.
std::string said_of(const std::function<void(NodeIdentity&)>& change, bool shared = true) {
  auto nodes = two_nodes();
  change(nodes[1]);
  return find_difference(nodes, shared).value_or("");
}

TEST(NodeIdentity, EqualNodesAgree) {
  EXPECT_EQ(said_of([](NodeIdentity&) {}), "");
  EXPECT_EQ(find_difference({}, true), std::nullopt);
}

TEST(NodeIdentity, EachDifferenceIsNamed) {
  EXPECT_EQ(said_of([](NodeIdentity& node) { node.local_ranks = 3; }),
            "node 1 (host-b) starts another number of ranks than node 0 (host-a): 3 there, 2 here; "
            "give all nodes the same --nproc-per-node");
  EXPECT_EQ(said_of([](NodeIdentity& node) { node.binary = "b1"; }),
            "node 1 (host-b) runs another build of skein than node 0 (host-a): digest b1 there, b0 "
            "here; install the same files on all nodes");
  EXPECT_EQ(said_of([](NodeIdentity& node) { node.data = "d1"; }),
            "node 1 (host-b) has other training data than node 0 (host-a): digest d1 there, d0 "
            "here; share or copy the same files, then start again");
  EXPECT_NE(said_of([](NodeIdentity& node) {
              node.device = "cuda";
            }).find("node 1 (host-b) trains on cuda, node 0 (host-a) on cpu"),
            std::string::npos);
  EXPECT_EQ(said_of([](NodeIdentity& node) { node.output_problem = "cannot open /x/out: why"; }),
            "node 1 (host-b) cannot use output_dir: cannot open /x/out: why");
}

TEST(NodeIdentity, TheFirstLineThatDiffersIsNamed) {
  EXPECT_EQ(said_of([](NodeIdentity& node) {
              set_configuration(node,
                                "learning_rate: 0.001\nseed: 43\noutput_dir: \"out\"\n"
                                "save_on_each_node: false\n");
            }),
            "node 1 (host-b) runs another configuration than node 0 (host-a): learning_rate: 0.001 "
            "there, 0.0003 here (first of 2 lines that differ); give the same file and flags on "
            "all nodes");
  EXPECT_NE(said_of([](NodeIdentity& node) {
              set_configuration(node, "x: 1\n" + std::string(kYaml));
            }).find("x: 1 there, absent here; give"),
            std::string::npos);
}

TEST(NodeIdentity, WhereDataLiesMayDiffer) {
  auto nodes = two_nodes();
  set_configuration(nodes[1], std::string(kYaml) + "data_cache_dir: \"/y\"\n");
  EXPECT_EQ(nodes[0].configuration, nodes[1].configuration);
  set_configuration(nodes[1], "output_dir: \"other\"\n");
  EXPECT_NE(nodes[0].configuration, nodes[1].configuration);
  set_configuration(nodes[0], "output_dir: \"a\"\nsave_on_each_node: true\n");
  set_configuration(nodes[1], "output_dir: \"b\"\nsave_on_each_node: true\n");
  EXPECT_EQ(nodes[0].configuration, nodes[1].configuration);
}

TEST(NodeIdentity, SharedOrNotAsAsked) {
  const auto blind = [](NodeIdentity& node) { node.sees_token = false; };
  EXPECT_NE(said_of(blind).find("output_dir is not one shared folder: node 1 (host-b)"),
            std::string::npos);
  EXPECT_EQ(said_of(blind, /*shared=*/false), "");
  EXPECT_NE(said_of([](NodeIdentity&) {}, false).find("drop save_on_each_node"), std::string::npos);
}

TEST(NodeIdentity, SurvivesTheWay) {
  auto node = two_nodes()[1];
  node.sees_token = false;
  node.output_problem = "a \"quoted\"\n\xff";
  const auto decoded = decode_identity(encode(node));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->configuration_text, node.configuration_text);
  EXPECT_FALSE(decoded->sees_token);
  EXPECT_EQ(encode(*decoded), encode(node));
  for (const char* bad : {"", "{}", "[1]", "{\"node\": \"x\"}"}) {
    EXPECT_FALSE(decode_identity(bad)) << bad;
  }
}

TEST(NodeIdentity, TheTokenShowsOneFolder) {
  const fs::path folder = make_temporary_folder("identity");
  const auto output = folder / "out";
  EXPECT_FALSE(sees_token(output, "t"));
  EXPECT_EQ(write_token(output, "t"), "");
  EXPECT_TRUE(sees_token(output, "t"));
  EXPECT_FALSE(sees_token(output, "u"));
  EXPECT_EQ(try_to_write(output), "");
  remove_token(output);
  EXPECT_TRUE(fs::is_empty(output));
  std::ofstream(folder / "file") << "x";
  EXPECT_NE(write_token(folder / "file", "t").find("file"), std::string::npos);
  EXPECT_NE(try_to_write(folder / "file").find("file"), std::string::npos);
  fs::remove_all(folder);
}

TEST(NodeIdentity, TheBinaryHasADigest) {
  EXPECT_EQ(binary_digest().size(), 32u);
  EXPECT_EQ(binary_digest(), binary_digest());
}

}  // namespace
}  // namespace skein::launch
