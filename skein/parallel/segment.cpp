// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/segment.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/ops/square_sum.h"

namespace skein::parallel {
namespace {

using tensor::Range;

at::Tensor part(const at::Tensor& flat, Range range) {
  return flat.narrow(0, range.begin, range.size());
}

// A tensor with sizes but no memory: leaves alias its storage, and gathering points the storage at
// memory. One assignment re-points every leaf and every tensor that autograd saved.
at::Tensor make_window(int64_t numel, at::ScalarType dtype, at::Device device) {
  const auto bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, device));
  auto window = at::empty({0}, at::TensorOptions().dtype(dtype).device(device));
  window.set_(storage, 0, {numel}, {1});
  return window;
}

void point(const at::Tensor& window, void* memory) {
  window.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(memory, window.device()));
}

}  // namespace

Segment::Segment(tensor::SegmentLayout layout, SegmentOptions options,
                 std::shared_ptr<tensor::FlatMemory> memory)
    : layout_(std::move(layout)), options_(std::move(options)), memory_(std::move(memory)) {
  const int64_t kept = kept_range().size();
  parameters_ = lies_on_disk()
                    ? memory_->adopt_from_disk(options_.side->parameters->take(kept, layout_.dtype))
                    : memory_->allocate(kept, layout_.dtype, options_.parameters);
  window_ = options_.stage.shards_parameters()
                ? make_window(layout_.whole_size, layout_.dtype, memory_->device())
                : parameters_.tensor();
  make_leaves();
  if (!layout_.trainable) return;
  touched_.assign(leaves_.size(), false);
  if (options_.states != Medium::kDevice) {
    host_ = std::make_shared<optim::HostRange>(
        options_.side, options_.states, lies_on_disk() ? options_.side->parameters : nullptr);
    host_gradient_ =
        memory_->allocate(owned_range().size(), options_.gradient_dtype, Medium::kPinnedHost);
    square_sum_ = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(memory_->device()));
  } else if (options_.stage.shards_gradients()) {
    gradient_shard_ = memory_->allocate(layout_.shard_size, options_.gradient_dtype);
  } else {
    gradient_window_ = make_window(layout_.whole_size, options_.gradient_dtype, memory_->device());
  }
}

void Segment::make_leaves() {
  for (const auto& [parameter, range, memory] : layout_.placements) {
    // variable_data(): an alias with its own version counter, never an autograd view.
    auto leaf = part(window_, memory).view(parameter->memory_shape()).variable_data();
    leaf.set_requires_grad(layout_.trainable);
    leaves_.push_back(leaf);
    *parameter->slot = leaf;
  }
}

Range Segment::kept_range() const {
  return options_.stage.shards_parameters() ? own_shard() : whole_range();
}

Range Segment::owned_range() const {
  return options_.stage.shards_states() ? own_shard() : whole_range();
}

at::Tensor Segment::kept_parameters(Access access) const {
  if (lies_on_disk()) options_.side->parameters->use_as_memory(access);
  return parameters_.tensor();
}

void Segment::wait_parameters() {
  if (host_) host_->wait();
  fetched_.order_caller();
  parameters_work_.wait();
}

void Segment::start_gather(comm::Group& group) {
  if (host_) host_->wait();
  gathered_ = memory_->allocate_unset(layout_.whole_size, layout_.dtype);
  if (!lies_on_disk() && parameters_.tensor().device() == memory_->device()) {
    parameters_work_ = group.all_gather(gathered_.tensor(), parameters_.tensor());
  } else {
    fetch_parameters(group);
  }
  point(window_, gathered_.tensor().mutable_data_ptr());
}

// Copied and gathered beside what the device computes.
void Segment::fetch_parameters(comm::Group& group) {
  auto& fetch = options_.side->fetch;
  fetch.follow(tensor::mark_of_caller(memory_->device()));  // the memory was another's before
  const auto own = part(gathered_.tensor(), own_shard());
  if (lies_on_disk()) {
    options_.side->reader->read(own, parameters_.tensor(), *options_.side->parameters, fetch);
  } else {
    fetch.copy(own, parameters_.tensor());
  }
  const c10::OptionalStreamGuard guard(fetch.stream());
  parameters_work_ = group.all_gather(gathered_.tensor(), own);
  fetched_ = fetch.mark();
}

void Segment::drop_gathered() {
  point(window_, nullptr);
  gathered_.reset();
}

void Segment::start_publish(comm::Group& group) {
  if (host_) host_->wait();
  parameters_work_ =
      group.all_gather(parameters_.tensor(), part(parameters_.tensor(), own_shard()));
}

void Segment::begin_accumulation() {
  std::fill(touched_.begin(), touched_.end(), false);
  drop_gradient();
}

void Segment::need_gradient() {
  if (gradient_) return;
  gradient_ = memory_->allocate_unset(layout_.whole_size, options_.gradient_dtype);
  for (const Range gap : gaps(layout_)) part(gradient_.tensor(), gap).zero_();
  if (gradient_window_.defined()) {
    point(gradient_window_, gradient_.tensor().mutable_data_ptr());
  }
}

void Segment::drop_gradient() {
  if (gradient_window_.defined()) point(gradient_window_, nullptr);
  gradient_.reset();
}

at::Tensor Segment::leaf_gradient(size_t leaf) const {
  const auto& [parameter, range, memory] = layout_.placements[leaf];
  return part(gradient_.tensor(), memory).view(parameter->memory_shape());
}

void Segment::add_gradient(size_t leaf, const at::Tensor& gradient) {
  need_gradient();
  auto sum = leaf_gradient(leaf);
  if (touched_[leaf]) {
    sum.add_(gradient);
  } else {
    sum.copy_(gradient);
    touched_[leaf] = true;
  }
}

void Segment::zero_untouched() {
  for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (!touched_[leaf]) leaf_gradient(leaf).zero_();
  }
}

void Segment::start_reduce(comm::Group& group, bool add) {
  need_gradient();
  zero_untouched();
  add_to_shard_ = add;
  const auto& whole = gradient_.tensor();
  if (!options_.stage.shards_states()) {
    gradient_work_ = group.all_reduce(whole);
  } else if (gradient_shard_ && !add) {
    gradient_work_ = group.reduce_scatter(gradient_shard_.tensor(), whole);
  } else {
    gradient_work_ = group.reduce_scatter(part(whole, own_shard()), whole);
  }
}

void Segment::finish_reduce() {
  gradient_work_.wait();
  if (host_) return send_gradient();
  if (!options_.stage.shards_gradients()) return;
  if (add_to_shard_) gradient_shard_.tensor().add_(part(gradient_.tensor(), own_shard()));
  begin_accumulation();
}

// What earlier micro-batches have left is brought back and added on the device, so that the host
// adds nothing and the square is taken there.
void Segment::send_gradient() {
  host_->wait();  // the update before reads what lies there
  auto& down = options_.side->down;
  down.follow(tensor::mark_of_caller(memory_->device()));
  const auto owned = part(gradient_.tensor(), owned_range());
  const Range own = own_shard(), all = owned_range();
  {
    const c10::OptionalStreamGuard guard(down.stream());
    if (add_to_shard_)
      owned.add_(host_gradient_.tensor().to(owned.options(), /*non_blocking=*/true));
    square_sum_.zero_();
    ops::add_square_sum(part(owned, {own.begin - all.begin, own.end - all.begin}), square_sum_);
  }
  squared_ = down.mark();
  down.copy(host_gradient_.tensor(), owned);
  host_->gradients = down.mark();
  options_.side->keep_until(host_->gradients, std::move(gradient_));
  begin_accumulation();
}

at::Tensor Segment::shard_gradient() const {
  const Range own = own_shard(), all = owned_range();
  if (host_) {
    host_->gradients.wait();
    return part(host_gradient_.tensor(), {own.begin - all.begin, own.end - all.begin});
  }
  return options_.stage.shards_gradients() ? gradient_shard_.tensor()
                                           : part(gradient_.tensor(), own);
}

void Segment::add_square_sum(const at::Tensor& sum) const {
  if (!host_) return ops::add_square_sum(shard_gradient(), sum);
  squared_.order_caller();
  sum.add_(square_sum_);
}

optim::OwnedRange Segment::owned() const {
  const Range owned = owned_range();
  const auto gradients = host_                               ? host_gradient_.tensor()
                         : options_.stage.shards_gradients() ? gradient_shard_.tensor()
                                                             : part(gradient_window_, owned);
  const auto parameters =
      options_.stage.shards_parameters() ? parameters_.tensor() : part(parameters_.tensor(), owned);
  optim::OwnedRange result{.parameters = parameters,
                           .gradients = gradients,
                           .groups = {},
                           .host = host_,
                           .segment = hash64(layout_.placements.front().parameter->name),
                           .begin = owned.begin};
  for (const auto& group : layout_.groups) {
    const Range cut = intersect(group.range, owned);
    if (cut.empty()) continue;
    result.groups.push_back(
        {{cut.begin - owned.begin, cut.end - owned.begin}, group.decay, group.rate});
  }
  return result;
}

void cut_slices(const tensor::SegmentLayout& layout, const FlatPart& part, Range want,
                const std::string& suffix, std::vector<tensor::TensorSlice>& out) {
  // Only the end of a parameter lies inside a block: all else begins and ends with one.
  const auto entries = [&](int64_t elements) { return (elements + part.block - 1) / part.block; };
  for (const auto& [parameter, range, memory] : layout.placements) {
    const Range cut = intersect(range, intersect(part.range, want));
    if (cut.empty()) continue;
    const int64_t begin = entries(cut.begin - range.begin), end = entries(cut.end - range.begin);
    const auto data = part.data.narrow(0, entries(cut.begin - part.range.begin), end - begin);
    out.push_back({.name = parameter->name + suffix,
                   .shape = part.block == 1 ? parameter->shape : std::vector{entries(range.size())},
                   .dtype = part.data.scalar_type(),
                   .begin = begin,
                   .end = end,
                   .data = data});
  }
}

}  // namespace skein::parallel
