// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Who writes a page in which bytes of several nodes lie?
//
// A client of a network file system may write whole pages: two nodes that write neighbouring bytes
// of one page could each put back what the other has replaced. So one node writes the page, the one
// with most of its bytes, and the others hand theirs over.

#include <cstdint>
#include <string>
#include <vector>

namespace skein::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;

// Bytes [begin, end) of a file; which, is an index into the list that all ranks share.
struct Extent {
  uint64_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  auto operator<=>(const Extent&) const = default;
};

// What of `extents` lies in pages that they do not fill, page by page and sorted. Extents that
// touch each other count as one.
std::vector<Extent> edges_of(std::vector<Extent> extents);

// A rank's edges. Ranks of one node see each other's bytes in pages that both write.
struct RankEdges {
  std::string node;
  std::vector<Extent> edges;
};

struct Handover {
  Extent bytes;  // within one page
  int from = 0;
  int to = 0;
};

// By rank. Sorted by bytes.
std::vector<Handover> route_pages(const std::vector<RankEdges>& ranks);

}  // namespace skein::checkpoint
