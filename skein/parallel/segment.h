// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The memory of one segment under a stage.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "skein/comm/group.h"
#include "skein/core/medium.h"
#include "skein/optim/host_side.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/stage.h"
#include "skein/tensor/flat_memory.h"
#include "skein/tensor/shard_layout.h"
#include "skein/tensor/tensor_slice.h"

namespace skein::parallel {

struct SegmentOptions {
  Stage stage;
  int rank = 0;
  at::ScalarType gradient_dtype = at::kFloat;
  // Of parameters that are sharded. On a GPU, others than the device's are fetched for each use.
  Medium parameters = Medium::kDevice;
  Medium states = Medium::kDevice;
  std::shared_ptr<optim::HostSide> side{};  // where one of them is not the device
};

class Segment {
 public:
  Segment(tensor::SegmentLayout layout, SegmentOptions options,
          std::shared_ptr<tensor::FlatMemory> memory);

  const tensor::SegmentLayout& layout() const { return layout_; }
  // Aliases of the parameter memory with version counters of their own, one per placement.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

  // Sharded parameters: makes them whole, and lets them go again.
  void start_gather(comm::Group& group);
  void drop_gathered();
  // Whole parameters, sharded states: the optimizer has updated this rank's shard; the others'
  // follow.
  void start_publish(comm::Group& group);
  // Waits for either of the two, and for an update by the host.
  void wait_parameters();
  // Is an update by the host under way, whose weights would be waited for?
  bool awaits_update() const { return host_ && !host_->has_arrived(); }

  // The first gradient of a leaf since begin_accumulation() is copied, the next are added. Lets go
  // the memory of the last gradient: there is none from here to the first add_gradient(), so that
  // activations find room.
  void begin_accumulation();
  void add_gradient(size_t leaf, const at::Tensor& gradient);
  // Sums over ranks; the result lies in the owned gradients after finish_reduce(). `add` keeps what
  // earlier micro-batches left there.
  void start_reduce(comm::Group& group, bool add);
  void finish_reduce();

  // What norms are computed over: this rank's shard, at every stage. Waits for its copy where the
  // host updates.
  at::Tensor shard_gradient() const;
  // Adds its square to `sum`, a float64 scalar on the device.
  void add_square_sum(const at::Tensor& sum) const;
  // What the optimizer works on: this rank's shard where states are sharded, else the whole.
  optim::OwnedRange owned() const;
  tensor::Range owned_range() const;
  tensor::Range own_shard() const { return layout_.shard(options_.rank); }
  // What is kept between steps.
  tensor::Range kept_range() const;
  // To be read, or set, until the next gather or update.
  at::Tensor kept_parameters(Access access) const;

 private:
  tensor::Range whole_range() const { return {0, layout_.whole_size}; }
  at::Tensor leaf_gradient(size_t leaf) const;
  void make_leaves();
  void need_gradient();
  void drop_gradient();
  void zero_untouched();
  bool lies_on_disk() const { return options_.parameters == Medium::kDisk; }
  void fetch_parameters(comm::Group& group);
  void send_gradient();

  tensor::SegmentLayout layout_;
  SegmentOptions options_;
  std::shared_ptr<tensor::FlatMemory> memory_;

  tensor::FlatBuffer parameters_;  // whole, or this rank's shard
  tensor::FlatBuffer gathered_;    // of sharded parameters: whole, while in use
  // Whole; from first use to begin_accumulation(), where sharded to the end of the reduction.
  tensor::FlatBuffer gradient_;
  tensor::FlatBuffer gradient_shard_;  // of sharded gradients that stay on the device
  tensor::FlatBuffer host_gradient_;   // of the owned range, where the host updates it
  at::Tensor square_sum_;              // of its shard, taken before it left the device
  tensor::Mark squared_;               // when it is there
  at::Tensor window_;                  // the whole segment as the leaves see it
  at::Tensor gradient_window_;         // of whole gradients: gradient_ as the optimizer sees it
  std::vector<at::Tensor> leaves_;
  std::vector<bool> touched_;
  bool add_to_shard_ = false;
  comm::Work parameters_work_, gradient_work_;
  tensor::Mark fetched_;  // of parameters that lie in host memory
  std::shared_ptr<optim::HostRange> host_;
};

// A part of a segment's elements, or of what an optimizer keeps of them, and where it lies.
struct FlatPart {
  at::Tensor data;
  tensor::Range range;  // of elements, also where several share an entry
  int64_t block = 1;    // elements per entry
};

// The elements of `part` that lie in `want`, as slices of tensors named NAME + suffix. Entries that
// elements share are a tensor of one dimension, which begins with the parameter.
void cut_slices(const tensor::SegmentLayout& layout, const FlatPart& part, tensor::Range want,
                const std::string& suffix, std::vector<tensor::TensorSlice>& out);

}  // namespace skein::parallel
