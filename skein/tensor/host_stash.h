// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do the inputs of a unit lie between forward and the backward that runs it again?
//
// In host memory (offload_activations). A copy leaves the device while the unit's forward runs, and
// the device's memory is let go when the next unit begins: one input is there at a time. Backward
// takes them back, the last one first: while a unit is differentiated, what the unit before it
// needs is on its way. The last unit's inputs are still on the device when backward begins.
//
// Order on a GPU is that of the copy engine's stream and events, never of the allocator: memory is
// let go when the caller's stream has been ordered after the copy. On a CPU copies are plain ones.
// Host memory comes in slabs of one size that are never given back before the stash ends: torch
// rounds pinned memory up to powers of two, and a slab serves rows of any length.
//
// One thread at a time: that of forward, then those of backward.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "skein/tensor/copy_engine.h"

namespace skein::tensor {

struct StashOptions {
  int64_t smallest = int64_t{1} << 20;    // bytes; smaller tensors stay where they are
  int64_t slab_bytes = int64_t{8} << 20;  // a power of two; half of one is lost per tensor
};

class HostStash {
 public:
  explicit HostStash(std::shared_ptr<CopyEngine> engine, const StashOptions& options = {});

  // What one use of a unit has kept. Dropped without being taken it is forgotten. May outlive the
  // stash.
  class Kept;

  // The caller may go on using the tensors until the next call, and may not change them. A tensor
  // that several uses keep is copied once. Throws UserError where host memory is short.
  Kept keep(const std::vector<at::Tensor>& inputs);

  int64_t kept_bytes() const;  // on the host, of uses that live
  int64_t host_bytes() const;  // allocated: the most that there was, in slabs

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

class HostStash::Kept {
 public:
  Kept(Kept&& other) noexcept;
  Kept& operator=(Kept&&) = delete;
  ~Kept();

  // Once: the tensors, equal to those that were given, requires_grad included. Begins to bring back
  // those of the youngest use that is left.
  std::vector<at::Tensor> take();

 private:
  friend class HostStash;
  struct Use;
  Kept(std::shared_ptr<Core> core, std::shared_ptr<Use> use);

  std::shared_ptr<Core> core_;
  std::shared_ptr<Use> use_;
};

}  // namespace skein::tensor
