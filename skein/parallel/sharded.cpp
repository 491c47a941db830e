// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/sharded.h"

#include <algorithm>

#include "skein/core/error.h"
#include "skein/ops/init.h"

namespace skein::parallel {

using tensor::Range;
using tensor::TensorSlice;

Sharded::Sharded(const tensor::ParameterTable& table, const ShardOptions& options,
                 comm::Group group)
    : table_(table),
      options_(options),
      group_(std::move(group)),
      memory_(tensor::FlatMemory::create(options.device)),
      unit_leaves_(table.units.size()),
      gather_(blocks(), gather_actions()),
      reduce_(reduce_order(), reduce_actions()) {
  for (auto& layout : tensor::lay_out(table_, group_.size())) {
    const int unit = layout.unit;
    const bool trainable = layout.trainable;
    const auto gradient_dtype =
        options_.fp32_gradients && c10::elementSize(layout.dtype) == 2 ? at::kFloat : layout.dtype;
    segments_.emplace_back(std::move(layout),
                           SegmentOptions{.stage = options_.stage,
                                          .rank = group_.rank(),
                                          .root = table_.units[unit].root,
                                          .gradient_dtype = gradient_dtype},
                           memory_);
    if (!trainable) continue;
    const auto& leaves = segments_.back().leaves();
    unit_leaves_[unit].insert(unit_leaves_[unit].end(), leaves.begin(), leaves.end());
  }
}

std::vector<int> Sharded::blocks() const {
  std::vector<int> units;
  for (int unit = 0; unit < static_cast<int>(table_.units.size()); ++unit) {
    if (!table_.units[unit].root) units.push_back(unit);
  }
  return units;
}

// Blocks as backward leaves them, then the root units.
std::vector<int> Sharded::reduce_order() const {
  auto order = blocks();
  std::ranges::reverse(order);
  for (int unit = 0; unit < static_cast<int>(table_.units.size()); ++unit) {
    if (table_.units[unit].root) order.push_back(unit);
  }
  return order;
}

template <typename Action>
void Sharded::for_segments(int unit, Action action) {
  for (auto& segment : segments_) {
    if (segment.layout().unit == unit) action(segment);
  }
}

GatherActions Sharded::gather_actions() {
  return {.start =
              [this](int unit) { for_segments(unit, [&](Segment& s) { s.start_gather(group_); }); },
          .wait = [this](int unit) { for_segments(unit, [](Segment& s) { s.wait_parameters(); }); },
          .drop = [this](int unit) { for_segments(unit, [](Segment& s) { s.drop_gathered(); }); }};
}

ReduceActions Sharded::reduce_actions() {
  return {.start = [this](int unit) { start_reduce(unit); },
          .finish =
              [this](int unit) {
                if (!reduces_now(unit)) return;
                for_segments(unit, [](Segment& s) {
                  if (s.layout().trainable) s.finish_reduce();
                });
              }};
}

bool Sharded::gathers(int unit) const {
  return options_.stage.shards_parameters() && !table_.units[unit].root;
}

// Sharded gradients of blocks cannot wait for the last micro-batch: that is what stage 2 saves.
bool Sharded::reduces_now(int unit) const {
  const bool every_micro_batch = options_.stage.shards_gradients() && !table_.units[unit].root;
  return every_micro_batch || micro_batch_ + 1 == num_micro_batches_;
}

void Sharded::start_reduce(int unit) {
  if (!reduces_now(unit)) return;
  const bool add = !table_.units[unit].root && micro_batch_ > 0;
  for_segments(unit, [&](Segment& segment) {
    if (segment.layout().trainable) segment.start_reduce(group_, add);
  });
}

void Sharded::begin_micro_batch(int64_t index, int64_t count) {
  SKEIN_CHECK(index >= 0 && index < count, "micro-batch out of range");
  micro_batch_ = index;
  num_micro_batches_ = count;
  if (index == 0) {
    for (auto& segment : segments_) segment.begin_accumulation();
  }
  gather_roots();
  gather_.begin();
  reduce_.begin();
}

void Sharded::end_micro_batch() {
  if (options_.stage.shards_parameters()) gather_.end();
  reduce_.end();
  if (micro_batch_ + 1 == num_micro_batches_) drop_roots();
}

void Sharded::begin_evaluation() { gather_roots(); }

void Sharded::end_evaluation() {
  if (options_.stage.shards_parameters()) gather_.end();
  drop_roots();
}

void Sharded::gather_roots() {
  if (!options_.stage.shards_parameters() || root_whole_) return;
  const auto actions = gather_actions();
  for (int unit = 0; unit < static_cast<int>(table_.units.size()); ++unit) {
    if (!table_.units[unit].root) continue;
    actions.start(unit);
    actions.wait(unit);
  }
  root_whole_ = true;
}

void Sharded::drop_roots() {
  if (!root_whole_) return;
  for (auto& segment : segments_) {
    if (table_.units[segment.layout().unit].root) segment.drop_gathered();
  }
  root_whole_ = false;
}

void Sharded::acquire(int unit, Pass pass) {
  if (gathers(unit)) {
    gather_.acquire(unit, pass);
  } else {
    for_segments(unit, [](Segment& segment) { segment.wait_parameters(); });
  }
}

void Sharded::release(int unit, Pass pass) {
  if (gathers(unit)) gather_.release(unit);
  // A block's gradient is complete after its one backward; a root unit's when backward has ended.
  if (pass == Pass::kBackward && !table_.units[unit].root) reduce_.done(unit);
}

void Sharded::add_gradients(int unit, const tensor::Tensors& gradients) {
  size_t next = 0;
  for_segments(unit, [&](Segment& segment) {
    if (!segment.layout().trainable) return;
    for (size_t leaf = 0; leaf < segment.leaves().size(); ++leaf, ++next) {
      if (gradients[next].defined()) segment.add_gradient(leaf, gradients[next]);
    }
  });
}

bool Sharded::recompute(int unit) const { return options_.recompute && !table_.units[unit].root; }

void Sharded::publish() {
  if (!options_.stage.shards_states() || options_.stage.shards_parameters()) return;
  for (auto* segment : trainable_segments()) segment->start_publish(group_);
}

std::vector<Segment*> Sharded::trainable_segments() {
  std::vector<Segment*> found;
  for (auto& segment : segments_) {
    if (segment.layout().trainable) found.push_back(&segment);
  }
  return found;
}

std::vector<const Segment*> Sharded::trainable_segments() const {
  const auto found = const_cast<Sharded*>(this)->trainable_segments();
  return {found.begin(), found.end()};
}

std::vector<optim::OwnedRange> Sharded::owned_ranges() const {
  std::vector<optim::OwnedRange> ranges;
  for (const auto* segment : trainable_segments()) ranges.push_back(segment->owned());
  return ranges;
}

std::vector<TensorSlice> Sharded::slices_to_save() {
  std::vector<TensorSlice> slices;
  for (auto& segment : segments_) {
    segment.wait_parameters();
    cut_slices(segment.layout(), {segment.kept_parameters(), segment.kept_range()},
               segment.own_shard(), "", slices);
  }
  return slices;
}

std::vector<TensorSlice> Sharded::slices_to_load() {
  std::vector<TensorSlice> slices;
  for (auto& segment : segments_) {
    segment.wait_parameters();
    cut_slices(segment.layout(), {segment.kept_parameters(), segment.kept_range()},
               segment.kept_range(), "", slices);
  }
  return slices;
}

std::vector<TensorSlice> Sharded::state_slices(const optim::AdamW& optimizer,
                                               const StateSelector& want) const {
  std::vector<TensorSlice> slices;
  const auto segments = trainable_segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& state = optimizer.states()[i];
    const auto cut = [&](const at::Tensor& data, const char* suffix) {
      cut_slices(segments[i]->layout(), {data, segments[i]->owned_range()}, want(*segments[i]),
                 suffix, slices);
    };
    if (optimizer.has_master()) cut(state.master, ".master");
    cut(state.exp_avg, ".exp_avg");
    cut(state.exp_avg_sq, ".exp_avg_sq");
  }
  return slices;
}

std::vector<TensorSlice> Sharded::slices_to_save(const optim::AdamW& optimizer) const {
  return state_slices(optimizer, [](const Segment& segment) { return segment.own_shard(); });
}

std::vector<TensorSlice> Sharded::slices_to_load(const optim::AdamW& optimizer) const {
  return state_slices(optimizer, [](const Segment& segment) { return segment.owned_range(); });
}

std::vector<TensorSlice> Sharded::gradient_slices() const {
  std::vector<TensorSlice> slices;
  for (const auto* segment : trainable_segments()) {
    cut_slices(segment->layout(), {segment->shard_gradient(), segment->own_shard()},
               segment->own_shard(), "", slices);
  }
  return slices;
}

void Sharded::initialise(uint64_t seed) {
  for (const auto& slice : slices_to_load()) {
    const auto* parameter = table_.find(slice.name);
    ops::initialise(slice.data, slice.begin, parameter->init, ops::init_key(seed, slice.name));
  }
}

}  // namespace skein::parallel
