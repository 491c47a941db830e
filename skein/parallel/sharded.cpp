// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/sharded.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <ranges>
#include <utility>

#include "skein/core/error.h"
#include "skein/ops/init.h"
#include "skein/ops/pinned_memory.h"

namespace skein::parallel {

using tensor::Range;
using tensor::TensorSlice;

namespace {

tensor::ParameterTable frozen(tensor::ParameterTable table) {
  for (auto& parameter : table.parameters) parameter.trainable = false;
  return table;
}

// Pinned exactly where a GPU copies; else whatever torch gives.
tensor::FlatMemory::HostAllocator host_allocator(const ShardOptions& options) {
  if (options.device.is_cpu()) return nullptr;
  if (options.pin_memory) return ops::pinned_memory;
  return [](int64_t bytes) { return at::zeros({bytes}, at::TensorOptions(at::kByte)); };
}

}  // namespace

Sharded::Sharded(const tensor::ParameterTable& table, const ShardOptions& options,
                 comm::Group group)
    : table_(options.inference ? frozen(table) : table),
      options_(options),
      group_(std::move(group)),
      memory_(tensor::FlatMemory::create(options.device, host_allocator(options))),
      unit_leaves_(table.units.size()),
      schedule_(scheduled_units(), table_.turns(), schedule_actions()) {
  check(options_.stage);
  const auto& offload = options_.offload;
  const auto parameters = options_.stage.shards_parameters() ? offload.parameters : Medium::kDevice;
  if (offload.any() || parameters != Medium::kDevice) {
    side_ = std::make_shared<optim::HostSide>(options_.device, memory_, options_.disk,
                                              options_.update_threads);
  }
  const auto states = media_of_states();
  auto layouts = tensor::lay_out(table_, group_.size());
  if (parameters == Medium::kDisk) open_disk(layouts);
  for (auto& layout : layouts) {
    const int unit = layout.unit;
    const bool trainable = layout.trainable;
    const auto gradient_dtype =
        options_.fp32_gradients && c10::elementSize(layout.dtype) == 2 ? at::kFloat : layout.dtype;
    segments_.emplace_back(std::move(layout),
                           SegmentOptions{.stage = options_.stage,
                                          .rank = group_.rank(),
                                          .gradient_dtype = gradient_dtype,
                                          .parameters = parameters,
                                          .states = trainable ? states[unit] : Medium::kDevice,
                                          .side = side_},
                           memory_);
    if (!trainable) continue;
    const auto& leaves = segments_.back().leaves();
    unit_leaves_[unit].insert(unit_leaves_[unit].end(), leaves.begin(), leaves.end());
  }
}

// Shards of all segments, in their order.
void Sharded::open_disk(const std::vector<tensor::SegmentLayout>& layouts) {
  std::vector<int64_t> bytes;
  for (const auto& layout : layouts) {
    bytes.push_back(layout.shard_size * static_cast<int64_t>(c10::elementSize(layout.dtype)));
  }
  side_->open_parameters(bytes);
}

std::vector<Medium> Sharded::media_of_states() const {
  std::vector<optim::UnitElements> units;
  for (const auto& unit : table_.units) units.push_back({.root = unit.root});
  for (const auto& parameter : table_.parameters) {
    if (parameter.trainable) units[parameter.unit].trainable += parameter.memory_numel();
  }
  const auto& offload = options_.offload;
  const auto off = optim::units_off_device(units, offload.any() ? offload.ratio : 0);
  std::vector<Medium> media;
  for (const bool is_off : off) media.push_back(is_off ? offload.states : Medium::kDevice);
  return media;
}

std::vector<Schedule::Unit> Sharded::scheduled_units() const {
  std::vector<Schedule::Unit> units;
  for (const auto& [name, root] : table_.units) {
    units.push_back({name, root, /*trainable=*/false, /*feeds_blocks=*/false});
  }
  bool blocks_follow = false;
  for (const auto& parameter : std::views::reverse(table_.parameters)) {
    auto& unit = units[parameter.unit];
    blocks_follow = blocks_follow || !unit.root;
    if (!parameter.trainable) continue;
    unit.trainable = true;
    unit.feeds_blocks = unit.feeds_blocks || blocks_follow;
  }
  return units;
}

template <typename Action>
void Sharded::for_segments(int unit, Action action) {
  for (auto& segment : segments_) {
    if (segment.layout().unit == unit) action(segment);
  }
}

ScheduleActions Sharded::schedule_actions() {
  const auto gathers = [this](int unit) {
    return options_.stage.shards_parameters() && !is_held(unit, whole_);
  };
  return {.start_gather =
              [=, this](int unit) {
                if (gathers(unit)) for_segments(unit, [&](Segment& s) { s.start_gather(group_); });
                if (unit == last_block()) gather_deferred();
              },
          .wait =
              [this](int unit) {
                publish_for(unit);
                for_segments(unit, [](Segment& s) { s.wait_parameters(); });
              },
          .drop =
              [=, this](int unit) {
                if (gathers(unit)) for_segments(unit, [](Segment& s) { s.drop_gathered(); });
              },
          .start_reduce = [this](int unit) { start_reduce(unit); },
          .finish_reduce = [this](int unit) { finish_reduce(unit); }};
}

bool Sharded::reduces_every_micro_batch(int unit) const {
  return options_.stage.reduces_every_micro_batch && !table_.units[unit].root;
}

bool Sharded::reduces_now(int unit) const {
  return reduces_every_micro_batch(unit) || micro_batch_ + 1 == num_micro_batches_;
}

void Sharded::finish_reduce(int unit) {
  if (!reduces_now(unit)) return;
  const bool complete = micro_batch_ + 1 == num_micro_batches_;
  size_t range = 0;
  for (auto* segment : trainable_segments()) {
    const size_t index = range++;
    if (segment->layout().unit != unit) continue;
    segment->finish_reduce();
    if (!complete || !on_gradient_) continue;
    segment->wait_parameters();  // nothing of the last update may still be on its way
    on_gradient_(index);
  }
}

void Sharded::start_reduce(int unit) {
  if (!reduces_now(unit)) return;
  publish_rest();
  const bool add = reduces_every_micro_batch(unit) && micro_batch_ > 0;
  for_segments(unit, [&](Segment& segment) {
    if (segment.layout().trainable) segment.start_reduce(group_, add);
  });
}

void Sharded::begin_micro_batch(int64_t index, int64_t count) {
  SKEIN_CHECK(index >= 0 && index < count, "micro-batch out of range");
  SKEIN_CHECK(!options_.inference || is_listening(),
              "a sharding made for inference has no micro-batches, unless somebody listens");
  micro_batch_ = index;
  num_micro_batches_ = count;
  if (index == 0) {
    for (auto& segment : segments_) segment.begin_accumulation();
    if (side_) side_->keep_until({}, {});  // nothing leaves now
    whole_before_step_ = whole_;
  }
  schedule_.begin_micro_batch();
  const auto before = whole_;
  if (has_host_ranges() && options_.stage.shards_parameters() && last_block() >= 0) {
    for (auto& segment : segments_) {
      const int unit = segment.layout().unit;
      if (is_deferred(unit) && !is_held(unit, before)) deferred_.push_back(&segment);
    }
  }
  gather(std::max(whole_, options_.stage.gathers_once_a_step ? Whole::kAll : Whole::kRoots));
}

void Sharded::end_micro_batch() {
  schedule_.end_micro_batch();
  if (micro_batch_ + 1 < num_micro_batches_) return;
  let_go(whole_before_step_);
  publish_rest();
  if (on_gradient_) return;  // updates of this step are under way
  // The optimizer writes next: nothing that this rank did not use may still be on its way.
  for (auto& segment : segments_) segment.wait_parameters();
}

void Sharded::begin_forward(const tensor::PassOptions& options) {
  SKEIN_CHECK(whole_ != Whole::kNothing,
              "a forward pass begins outside of micro-batches: hold_roots() first");
  schedule_.begin_forward(at::GradMode::is_enabled(), options.differentiable_inputs);
}

// Alike on all ranks, whichever blocks they have left out.
void Sharded::end_forward() {
  schedule_.end_forward();
  publish_rest();
}

bool Sharded::is_held(int unit, Whole whole) const {
  return whole == Whole::kAll || (whole == Whole::kRoots && table_.units[unit].root);
}

// Starts all gathers; each is waited for where its unit is first used.
void Sharded::gather(Whole whole) {
  if (options_.stage.shards_parameters()) {
    for (auto& segment : segments_) {
      const int unit = segment.layout().unit;
      const bool later = std::ranges::find(deferred_, &segment) != deferred_.end();
      if (is_held(unit, whole) && !is_held(unit, whole_) && !later) segment.start_gather(group_);
    }
  }
  whole_ = whole;
}

int Sharded::last_block() const {
  for (int unit = static_cast<int>(table_.units.size()); unit-- > 0;) {
    if (!table_.units[unit].root) return unit;
  }
  return -1;
}

bool Sharded::is_deferred(int unit) const { return table_.units[unit].root && unit > last_block(); }

void Sharded::gather_deferred() {
  for (auto* segment : std::exchange(deferred_, {})) segment->start_gather(group_);
}

void Sharded::let_go(Whole whole) {
  gather_deferred();  // of a step without a pass
  if (options_.stage.shards_parameters()) {
    for (auto& segment : segments_) {
      const int unit = segment.layout().unit;
      if (is_held(unit, whole) || !is_held(unit, whole_)) continue;
      segment.wait_parameters();
      segment.drop_gathered();
    }
  }
  whole_ = whole;
}

Sharded::Hold Sharded::hold_roots() { return {*this, Whole::kRoots}; }

Sharded::Hold Sharded::hold_whole() { return {*this, Whole::kAll}; }

Sharded::Hold::Hold(Sharded& sharded, Whole whole)
    : sharded_(sharded), before_(sharded.whole_), exceptions_(std::uncaught_exceptions()) {
  SKEIN_CHECK(sharded_.schedule_.idle(),
              "units are held whole outside of micro-batches and passes");
  sharded_.schedule_.drop_blocks();
  sharded_.publish_rest();
  sharded_.gather(std::max(before_, whole));
}

Sharded::Hold::~Hold() noexcept(false) {
  if (std::uncaught_exceptions() > exceptions_) return;
  SKEIN_CHECK(sharded_.schedule_.idle(), "a hold ends inside a micro-batch or a pass");
  sharded_.schedule_.drop_blocks();
  sharded_.let_go(before_);
}

void Sharded::acquire(int unit, Pass pass) {
  const bool early = pass == Pass::kForward && table_.units[unit].root && !is_held(unit, whole_);
  SKEIN_CHECK(!early, fmt::format("unit '{}' is used outside of micro-batches: hold_roots() first",
                                  table_.units[unit].name));
  // It stands behind all blocks: what this rank leaves out of them takes its turn first.
  if (!deferred_.empty() && is_deferred(unit)) schedule_.pass_blocks();
  schedule_.acquire(unit, pass);
  use_began_ = trace::now();
}

void Sharded::release(int unit, Pass pass) {
  if (const auto began = std::exchange(use_began_, {})) {
    trace::add("unit",
               fmt::format("{} {}", table_.units[unit].name,
                           pass == Pass::kForward ? "forward" : "backward"),
               began);
  }
  schedule_.release(unit, pass);
}

void Sharded::add_gradients(int unit, tensor::Tensors gradients) {
  size_t next = 0;
  for_segments(unit, [&](Segment& segment) {
    if (!segment.layout().trainable) return;
    for (size_t leaf = 0; leaf < segment.leaves().size(); ++leaf, ++next) {
      const auto gradient = std::exchange(gradients[next], at::Tensor());
      if (gradient.defined()) segment.add_gradient(leaf, gradient);
    }
  });
}

bool Sharded::recompute(int unit) const { return options_.recompute && !table_.units[unit].root; }

void Sharded::publish() {
  SKEIN_CHECK(whole_ == Whole::kNothing, "what is held whole would keep the old weights");
  if (!options_.stage.shards_states() || options_.stage.shards_parameters()) return;
  for (auto* segment : trainable_segments()) unpublished_.push_back(segment);
  if (!has_host_ranges()) publish_rest();
}

void Sharded::publish_for(int unit) {
  const auto is_needed = [unit](const Segment* segment) { return segment->layout().unit == unit; };
  while (!unpublished_.empty()) {
    const bool must = std::ranges::any_of(unpublished_, is_needed);
    if (!must && unpublished_.front()->awaits_update()) return;
    unpublished_.front()->start_publish(group_);
    unpublished_.pop_front();
  }
}

void Sharded::publish_rest() {
  for (auto* segment : unpublished_) segment->start_publish(group_);
  unpublished_.clear();
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

void Sharded::finish_updates() {
  publish_rest();
  for (auto& segment : segments_) segment.wait_parameters();
}

std::vector<TensorSlice> Sharded::slices_to_save(Access access) {
  finish_updates();
  std::vector<TensorSlice> slices;
  for (auto& segment : segments_) {
    cut_slices(segment.layout(), {segment.kept_parameters(access), segment.kept_range()},
               segment.own_shard(), "", slices);
  }
  return slices;
}

std::vector<TensorSlice> Sharded::kept_slices(Access access) {
  finish_updates();
  std::vector<TensorSlice> slices;
  for (auto& segment : segments_) {
    cut_slices(segment.layout(), {segment.kept_parameters(access), segment.kept_range()},
               segment.kept_range(), "", slices);
  }
  return slices;
}

std::vector<TensorSlice> Sharded::state_slices(const States& states,
                                               const StateSelector& want) const {
  std::vector<TensorSlice> slices;
  const auto segments = trainable_segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    for (const auto& [name, data, block] : states[i]) {
      cut_slices(segments[i]->layout(), {data, segments[i]->owned_range(), block},
                 want(*segments[i]), "." + name, slices);
    }
  }
  return slices;
}

std::vector<TensorSlice> Sharded::slices_to_save(const States& states) const {
  return state_slices(states, [](const Segment& segment) { return segment.own_shard(); });
}

std::vector<TensorSlice> Sharded::kept_slices(const States& states) const {
  return state_slices(states, [](const Segment& segment) { return segment.owned_range(); });
}

void Sharded::gather_loaded() {
  if (options_.stage.shards_parameters()) return;
  for (auto& segment : segments_) segment.start_publish(group_);
  for (auto& segment : segments_) segment.wait_parameters();
}

void Sharded::gather_loaded(const States& states) {
  if (options_.stage.shards_states()) return;
  const auto segments = trainable_segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const Range own = segments[i]->own_shard();
    for (const auto& [name, data, block] : states[i]) {
      gather_state(data, {own.begin / block, own.end / block});
    }
  }
}

// What lies in host memory goes through the device, where collectives of GPUs can reach it.
void Sharded::gather_state(const at::Tensor& data, Range own) {
  const auto whole = data.to(options_.device);
  group_.all_gather(whole, whole.narrow(0, own.begin, own.size())).wait();
  if (!whole.is_alias_of(data)) data.copy_(whole);
}

std::vector<TensorSlice> Sharded::gradient_slices() const {
  std::vector<TensorSlice> slices;
  for (const auto* segment : trainable_segments()) {
    cut_slices(segment->layout(), {segment->shard_gradient(), segment->own_shard()},
               segment->own_shard(), "", slices);
  }
  return slices;
}

void Sharded::initialise(uint64_t seed,
                         const std::function<bool(const tensor::Parameter&)>& which) {
  for (const auto& slice : kept_slices(Access::kSet)) {
    const auto* parameter = table_.find(slice.name);
    if (which && !which(*parameter)) continue;
    ops::initialise(slice.data, slice.begin, *parameter, seed);
  }
}

}  // namespace skein::parallel
