// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/page_routes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace skein::checkpoint {
namespace {

using Extents = std::vector<Extent>;

TEST(PageRoutes, EdgesAreWhatDoesNotFillItsPage) {
  EXPECT_EQ(edges_of({{0, 4096, 12288}}), Extents{});
  EXPECT_EQ(edges_of({{0, 100, 300}}), (Extents{{0, 100, 300}}));
  EXPECT_EQ(edges_of({{0, 0, 300}}), (Extents{{0, 0, 300}}));
  EXPECT_EQ(edges_of({{0, 100, 9000}}), (Extents{{0, 100, 4096}, {0, 8192, 9000}}));
  EXPECT_EQ(edges_of({{0, 4000, 4100}}), (Extents{{0, 4000, 4096}, {0, 4096, 4100}}));
  // Pieces that touch each other, in any order, and those of two files, which do not.
  EXPECT_EQ(edges_of({{0, 5000, 8192}, {0, 4096, 5000}}), Extents{});
  EXPECT_EQ(edges_of({{0, 0, 5000}, {1, 5000, 8192}}), (Extents{{0, 4096, 5000}, {1, 5000, 8192}}));
}

TEST(PageRoutes, TheSmallerPartGoesToTheOtherNode) {
  const auto routes = route_pages({{"a", {{0, 0, 1000}}}, {"b", {{0, 1000, 4096}}}});
  ASSERT_EQ(routes.size(), 1U);
  EXPECT_EQ(routes[0].bytes, (Extent{0, 0, 1000}));
  EXPECT_EQ(routes[0].from, 0);
  EXPECT_EQ(routes[0].to, 1);
  EXPECT_TRUE(route_pages({{"a", {{0, 0, 1000}}}, {"a", {{0, 1000, 4096}}}}).empty());
  // The node with most of a page, though no rank of it has most.
  const auto three =
      route_pages({{"a", {{0, 0, 1500}}}, {"b", {{0, 1500, 2500}}}, {"b", {{0, 2500, 4096}}}});
  ASSERT_EQ(three.size(), 1U);
  EXPECT_EQ(three[0].to, 2);
}

// Any cut of a file over ranks and nodes: every byte is written once, no page by two nodes.
TEST(PageRoutes, PagesHaveOneNodeAndBytesOneWriter) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int num_ranks = 2 + static_cast<int>(random() % 6);
    std::vector<Extents> held(static_cast<size_t>(num_ranks));
    std::vector<RankEdges> ranks(held.size());
    const uint64_t size = 40'000 + random() % 1000, longest = round % 2 == 0 ? 600 : 9000;
    for (uint64_t begin = 0; begin < size;) {
      const uint64_t end = std::min<uint64_t>(size, begin + 1 + random() % longest);
      held[random() % held.size()].push_back({0, begin, end});
      begin = end;
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank] = {rank % 3 == 0 ? "a" : "b", edges_of(held[rank])};
    }
    std::map<uint64_t, size_t> writer;  // of each byte
    for (size_t rank = 0; rank < held.size(); ++rank) {
      for (const auto& extent : held[rank]) {
        for (uint64_t byte = extent.begin; byte < extent.end; ++byte) writer[byte] = rank;
      }
    }
    for (const auto& [bytes, from, to] : route_pages(ranks)) {
      for (uint64_t byte = bytes.begin; byte < bytes.end; ++byte) {
        ASSERT_EQ(writer[byte], static_cast<size_t>(from));
        writer[byte] = static_cast<size_t>(to);
      }
    }
    ASSERT_EQ(writer.size(), size);
    std::map<uint64_t, std::set<std::string>> nodes;
    for (const auto& [byte, rank] : writer) nodes[byte / kPageBytes].insert(ranks[rank].node);
    for (const auto& [page, names] : nodes) ASSERT_EQ(names.size(), 1U) << page;
  }
}

}  // namespace
}  // namespace skein::checkpoint
