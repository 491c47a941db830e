// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does each parameter lie in its unit's flat buffers, and which part is whose?
//
// A unit has one buffer per segment; a segment is (dtype, trainable or frozen). One offset table
// serves parameters, gradients, master weights and moments. Offsets, group boundaries and shard
// sizes are multiples of 128 elements: vector kernels then round the same whatever the cut.
// Shards are equal; the padding (between parameters, of rows, at the end) is zero and reaches no
// file.

#include <cstdint>
#include <vector>

#include "skein/tensor/parameter_table.h"

namespace skein::tensor {

constexpr int64_t kFlatAlignment = 128;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
};

Range intersect(Range a, Range b);

// Elements that an optimizer updates alike.
struct UpdateGroup {
  Range range;
  bool decay = true;  // weight decay applies
  double rate = 1;    // the learning rate is this times the step's
};

struct Placement {
  const Parameter* parameter = nullptr;  // of the table, which must outlive the layout
  Range range;                           // elements of the segment that files know
  Range memory;                          // those of the leaf: the same, and padded rows
};

struct SegmentLayout {
  int unit = 0;
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;
  std::vector<Placement> placements;  // in the order of the groups
  std::vector<UpdateGroup> groups;    // those with weight decay first; together the whole segment
  int64_t whole_size = 0;             // padded
  int64_t shard_size = 0;

  Range shard(int rank) const { return {rank * shard_size, (rank + 1) * shard_size}; }
};

// What of the segment lies in no leaf.
std::vector<Range> gaps(const SegmentLayout& segment);

// Segments in the order of units; every rank gets the same list.
std::vector<SegmentLayout> lay_out(const ParameterTable& table, int num_ranks);

}  // namespace skein::tensor
