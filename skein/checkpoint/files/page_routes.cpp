// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/page_routes.h"

#include <algorithm>
#include <map>
#include <span>

namespace skein::checkpoint {
namespace {

uint64_t page_begin(uint64_t byte) { return byte / kPageBytes * kPageBytes; }

struct Edge {
  Extent bytes;
  int rank = 0;

  uint64_t size() const { return bytes.end - bytes.begin; }
  bool in_page_of(const Edge& other) const {
    return bytes.file == other.bytes.file &&
           page_begin(bytes.begin) == page_begin(other.bytes.begin);
  }
};

// Appends the edges of one extent with no neighbours.
void add_edges(const Extent& extent, std::vector<Extent>& edges) {
  const auto& [file, begin, end] = extent;
  const uint64_t first_end = page_begin(begin) + kPageBytes, last_begin = page_begin(end);
  if (begin % kPageBytes != 0) edges.push_back({file, begin, std::min(end, first_end)});
  const bool is_new = begin % kPageBytes == 0 || last_begin >= first_end;
  if (end % kPageBytes != 0 && is_new) edges.push_back({file, std::max(begin, last_begin), end});
}

// The rank that writes a page: of the node that has most of it, the one that has most.
int writer_of(std::span<const Edge> page, const std::vector<RankEdges>& ranks) {
  std::map<std::string, uint64_t> by_node;
  std::map<int, uint64_t> by_rank;
  for (const auto& edge : page) {
    by_node[ranks[static_cast<size_t>(edge.rank)].node] += edge.size();
    by_rank[edge.rank] += edge.size();
  }
  const auto larger = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto& node = std::ranges::max_element(by_node, larger)->first;
  std::erase_if(by_rank, [&](const auto& entry) {
    return ranks[static_cast<size_t>(entry.first)].node != node;
  });
  return std::ranges::max_element(by_rank, larger)->first;
}

void route_page(std::span<const Edge> page, const std::vector<RankEdges>& ranks,
                std::vector<Handover>& handovers) {
  const auto node_of = [&](int rank) -> const std::string& {
    return ranks[static_cast<size_t>(rank)].node;
  };
  const bool shared = std::ranges::any_of(
      page, [&](const Edge& edge) { return node_of(edge.rank) != node_of(page[0].rank); });
  if (!shared) return;
  const int writer = writer_of(page, ranks);
  for (const auto& edge : page) {
    if (node_of(edge.rank) != node_of(writer)) handovers.push_back({edge.bytes, edge.rank, writer});
  }
}

}  // namespace

std::vector<Extent> edges_of(std::vector<Extent> extents) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::ranges::sort(extents);
  std::vector<Extent> edges;
  for (size_t i = 0; i < extents.size();) {
    auto whole = extents[i++];
    while (i < extents.size() && extents[i].file == whole.file && extents[i].begin == whole.end) {
      whole.end = extents[i++].end;
    }
    add_edges(whole, edges);
  }
  return edges;
}

std::vector<Handover> route_pages(const std::vector<RankEdges>& ranks) {
  std::vector<Edge> edges;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& bytes : ranks[rank].edges) edges.push_back({bytes, static_cast<int>(rank)});
  }
  std::ranges::sort(edges, {}, &Edge::bytes);
  std::vector<Handover> handovers;
  for (size_t begin = 0, end = 0; begin < edges.size(); begin = end) {
    while (end < edges.size() && edges[end].in_page_of(edges[begin])) ++end;
    route_page(std::span(edges).subspan(begin, end - begin), ranks, handovers);
  }
  return handovers;
}

}  // namespace skein::checkpoint
