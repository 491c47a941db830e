// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/shard_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace skein::tensor {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void place(SegmentLayout& segment, int num_ranks) {
  const auto group_key = [](const Placement& p) {
    return std::pair(!p.parameter->decay, p.parameter->rate);
  };
  std::ranges::stable_sort(segment.placements, {}, group_key);
  int64_t offset = 0;
  for (auto& [parameter, range, memory] : segment.placements) {
    range = {offset, offset + parameter->numel()};
    memory = {offset, offset + parameter->memory_numel()};
    offset = round_up(memory.end, kFlatAlignment);
    auto& groups = segment.groups;
    if (groups.empty() || groups.back().decay != parameter->decay ||
        groups.back().rate != parameter->rate) {
      groups.push_back({{range.begin, offset}, parameter->decay, parameter->rate});
    }
    groups.back().range.end = offset;
  }
  segment.shard_size = round_up(offset, kFlatAlignment * num_ranks) / num_ranks;
  segment.whole_size = segment.shard_size * num_ranks;
  segment.groups.back().range.end = segment.whole_size;  // padding is zero and stays so
}

}  // namespace

Range intersect(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

std::vector<Range> gaps(const SegmentLayout& segment) {
  std::vector<Range> found;
  int64_t end = 0;
  const auto add_up_to = [&](int64_t begin) {
    if (end < begin) found.push_back({end, begin});
  };
  for (const auto& placement : segment.placements) {
    add_up_to(placement.memory.begin);
    end = placement.memory.end;
  }
  add_up_to(segment.whole_size);
  return found;
}

std::vector<SegmentLayout> lay_out(const ParameterTable& table, int num_ranks) {
  std::vector<SegmentLayout> segments;
  for (int unit = 0; unit < static_cast<int>(table.units.size()); ++unit) {
    std::map<std::pair<bool, at::ScalarType>, SegmentLayout> of_unit;  // trainable ones last
    for (const auto& parameter : table.parameters) {
      if (parameter.unit != unit) continue;
      auto& segment = of_unit[{parameter.trainable, parameter.dtype}];
      segment.placements.push_back({&parameter, {}, {}});
    }
    for (auto& [kind, segment] : of_unit) {
      segment.unit = unit;
      segment.trainable = kind.first;
      segment.dtype = kind.second;
      place(segment, num_ranks);
      segments.push_back(std::move(segment));
    }
  }
  return segments;
}

}  // namespace skein::tensor
