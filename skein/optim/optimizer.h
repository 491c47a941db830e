// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What turns gradients into new weights.
//
// An optimizer sees no parameter, only flat ranges of elements that are updated alike, and keeps
// for each range the states of optim/states.h. A new one is a list there, and begin_step(),
// step_range() and end_step() here; states on a disk pass through its hands by pass_from_disk().

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/medium.h"
#include "skein/optim/disk_file.h"
#include "skein/optim/disk_windows.h"
#include "skein/optim/host_side.h"
#include "skein/tensor/flat_memory.h"
#include "skein/tensor/shard_layout.h"

namespace skein::optim {

// The elements of one flat segment that this rank updates.
struct OwnedRange {
  at::Tensor parameters;  // working weights, on the device or in host memory
  // Of the same elements, in the weights' dtype or fp32. Of a host range they lie in host memory.
  at::Tensor gradients;
  // Together all of them, in their order; boundaries are multiples of 128.
  std::vector<tensor::UpdateGroup> groups;
  // Where its states lie outside of the device, and the host updates it; else null.
  std::shared_ptr<HostRange> host{};
  // What is drawn for an element follows from the name of its segment and its place there, so that
  // every split draws the same.
  uint64_t segment = 0;
  int64_t begin = 0;  // place of the first element, a multiple of 128
};

// What an optimizer keeps of one range: optim::state_tensors(), allocated.
struct NamedState {
  std::string name;
  at::Tensor data;    // an entry for every `block` elements of the range
  int64_t block = 1;  // of which offsets and sizes of ranges and groups are multiples
};
using RangeStates = std::vector<NamedState>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The gradients count `factor` (float64) times and stay as they are; `skip` (float32) leaves
  // everything as it is when it is 1. Both are scalars on the ranges' device, so that no step waits
  // for the host.
  struct Decision {
    at::Tensor factor, skip;
  };
  // Host ranges are updated beside the caller: HostRange::wait() before their weights are used.
  void step(double learning_rate, const Decision& decision);
  // The same in parts, where gradients of some ranges are complete before others: each range once,
  // in any order.
  virtual void begin_step(double learning_rate, const Decision& decision) = 0;
  virtual void step_range(size_t range) = 0;
  virtual void end_step() = 0;

  const config::OptimizerConfig& options() const { return options_; }
  // One list per range, no update under way. They may be read, or set, until the next step.
  const std::vector<RangeStates>& states(Access access = Access::kRead);
  // What was copied of states(Access::kCopy) is what was written there; else throws IoError.
  void compare_copied() {
    if (disk_) disk_->compare();
  }
  // Call when the weights were set from outside.
  void refresh_masters();

  // Updates made so far, skipped ones not counted: the bias correction's exponent.
  int64_t num_updates();
  void set_num_updates(int64_t count);

 protected:
  Optimizer(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
            tensor::FlatMemory& memory, uint64_t seed);

  const std::vector<OwnedRange>& ranges() const { return ranges_; }
  // Undefined where the list has none of this name.
  at::Tensor state(size_t range, std::string_view name) const;
  // The states of a window of it.
  RangeStates states_in(size_t range, tensor::Range window) const;

  // Where states or weights of a range lie on a disk, windows of them pass through memory, where
  // the update changes them.
  bool is_on_disk(size_t range) const;
  // `weights`: undefined where they do not lie there.
  using OnWindow = std::function<void(tensor::Range window, const at::Tensor& weights,
                                      const RangeStates& states)>;
  void pass_from_disk(size_t range, const OnWindow& on_window);
  // What a range's rounding draws, together with the number of the update.
  uint64_t rounding_key(size_t range) const;
  // A float32 scalar on the device: num_updates(), without waiting for it.
  const at::Tensor& update_count() const { return update_count_; }
  // The same for host ranges; their updates count there.
  int64_t& host_update_count() { return host_update_count_; }

 private:
  void allocate_states(tensor::FlatMemory& memory);
  void open_disk(tensor::FlatMemory& memory);
  std::vector<PassingArray> passing_arrays(size_t range) const;
  void finish_updates();

  std::vector<OwnedRange> ranges_;
  config::OptimizerConfig options_;
  uint64_t seed_;
  std::shared_ptr<DiskFile> disk_;  // of states that lie there; else null
  std::vector<tensor::FlatBuffer> buffers_;
  std::vector<RangeStates> states_;
  std::optional<DiskWindows> windows_;  // where something lies on a disk
  at::Tensor update_count_;
  int64_t host_update_count_ = 0;
};

// The one that the options ask for. `seed`: of what is rounded at random (pure_bf16).
std::unique_ptr<Optimizer> make_optimizer(std::vector<OwnedRange> ranges,
                                          const config::OptimizerConfig& options,
                                          tensor::FlatMemory& memory, uint64_t seed);

}  // namespace skein::optim
