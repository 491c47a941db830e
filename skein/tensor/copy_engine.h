// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do bytes of tensors get into host memory and back?
//
// From a CPU at once. From a GPU into pinned memory, on a stream of its own, while the caller's
// stream goes on: a mark tells when they are there. For checkpoints and for offload.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace skein::tensor {

class CopyEngine {
 public:
  virtual ~CopyEngine() = default;

  // A point in the sequence of copies.
  class Mark {
   public:
    virtual ~Mark() = default;
    // Have the copies before it ended? Any thread may ask.
    virtual bool reached() const = 0;
    // What the calling thread issues from here on runs after them. Does not block the host.
    virtual void order_caller() const = 0;
  };

  // Copies are made, and waited for, in chunks of this size (a multiple of 64).
  virtual int64_t chunk_bytes() const = 0;
  // How much host memory this rank may take for copies.
  virtual int64_t budget() const = 0;
  // Memory that copies are fast into; a byte tensor.
  virtual at::Tensor allocate(int64_t bytes) = 0;

  // Copies from here on see what the calling thread has issued so far.
  virtual void begin() = 0;
  // Of the same type and size, contiguous. After the copies before it. One thread at a time.
  virtual void copy(const at::Tensor& target, const at::Tensor& source) = 0;
  // None: all copies have ended.
  virtual std::unique_ptr<Mark> mark() = 0;
};

struct CopyOptions {
  int ranks_here = 1;      // this rank and others, who share the machine's memory
  int64_t left_over = 0;   // bytes of this rank's share that are somebody else's
  bool in_pieces = false;  // on CPUs too: what is copied may be more than memory holds
};
// For tensors of `device`.
std::shared_ptr<CopyEngine> make_copy_engine(at::Device device, const CopyOptions& options = {});

}  // namespace skein::tensor
