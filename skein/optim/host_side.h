// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the host does beside a rank's device: it updates ranges whose states lie outside of the
// device's memory, while the device goes on.
//
// A range's gradient is copied down as soon as it is complete. Updates run on a thread of their
// own, of a step those first that the next one needs first; new weights are copied up as they come.
// Who needs the weights waits for the range alone. On a CPU rank all of it is the host's memory,
// and the same code runs without copies.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "skein/core/medium.h"
#include "skein/optim/disk_file.h"
#include "skein/optim/disk_windows.h"
#include "skein/optim/task_thread.h"
#include "skein/optim/thread_team.h"
#include "skein/tensor/copy_stream.h"
#include "skein/tensor/flat_memory.h"

namespace skein::optim {

// Of one rank. Copies are issued by the thread that trains, but for those of `up`, which are the
// tasks'.
struct HostSide {
  HostSide(at::Device rank_device, std::shared_ptr<tensor::FlatMemory> flat_memory,
           DiskOptions disk_options = {}, int update_threads = 0);

  const at::Device device;
  const std::shared_ptr<tensor::FlatMemory> memory;
  const DiskOptions disk;
  ThreadTeam team;  // of updates; for tasks

  // Makes a file for shards of parameters of these sizes, and the memory to fetch them through.
  void open_parameters(std::span<const int64_t> shard_bytes);
  std::shared_ptr<DiskFile> parameters;  // null: they do not lie on a disk
  std::optional<DiskReader> reader;      // of them, by the thread that trains

  // Of small tensors that copies reach.
  at::TensorOptions host_options(at::ScalarType dtype) const {
    return at::TensorOptions(at::kCPU).dtype(dtype).pinned_memory(device.is_cuda());
  }

  // Device memory that a copy of `down` still reads. There is one such buffer at a time: the one
  // before it is let go, once the caller's stream is ordered after its copy.
  void keep_until(tensor::Mark copied, tensor::FlatBuffer buffer);

  tensor::CopyStream down;   // gradients, and what is decided about them
  tensor::CopyStream fetch;  // parameters that lie in host memory
  tensor::CopyStream up;     // new weights
  TaskThread tasks;          // last: what runs there uses the others

 private:
  tensor::FlatBuffer leaving_;
  tensor::Mark left_;
};

// One range of it. Shared by whoever holds its parameters and the optimizer.
struct HostRange {
  std::shared_ptr<HostSide> side;
  Medium states = Medium::kPinnedHost;
  std::shared_ptr<DiskFile> parameters;  // where its weights lie; null: in memory
  tensor::Mark gradients;                // when they are in host memory

  uint64_t task = 0;     // the update under way, or the last one; 0: none yet
  tensor::Mark weights;  // set by that task: when the new ones are where they belong

  bool has_arrived() const { return side->tasks.has_ended(task); }
  // What the calling thread does and issues from here on sees the new weights.
  void wait() {
    side->tasks.wait(task);
    weights.order_caller();
  }
};

// Pinned memory through which new weights go up, a piece at a time; used by tasks.
class UploadSlots {
 public:
  // Pieces of `bytes` at most.
  UploadSlots(std::shared_ptr<HostSide> side, int64_t bytes);

  // The next slot: nothing reads it any more.
  at::Tensor take(int64_t numel, at::ScalarType dtype);
  // Copies what take() has given, filled, to the device.
  void send(const at::Tensor& target, const at::Tensor& slot);

 private:
  struct Slot {
    tensor::FlatBuffer buffer;
    tensor::Mark sent;
  };
  std::shared_ptr<HostSide> side_;
  std::vector<Slot> slots_;
  size_t current_ = 0;
};

}  // namespace skein::optim
