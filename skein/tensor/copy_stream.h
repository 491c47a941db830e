// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Copies between a device and the host's memory, beside what the device computes.
//
// On a GPU they run on a stream of their own: nothing waits but where a mark is asked. On a CPU
// they are made at once, and every mark is reached.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace c10 {
struct Event;
}

namespace skein::tensor {

// A point in a sequence of copies. Any thread may ask. One that was made by default is reached.
class Mark {
 public:
  Mark() = default;
  explicit Mark(const c10::Stream& stream);

  bool is_reached() const;
  void wait() const;          // blocks the calling thread
  void order_caller() const;  // what the calling thread issues from here on runs after it

 private:
  std::shared_ptr<c10::Event> event_;
};

// What the calling thread has issued on its current stream of this device; on a CPU reached.
Mark mark_of_caller(at::Device device);

// Used by one thread at a time.
class CopyStream {
 public:
  explicit CopyStream(at::Device device);

  // Copies from here on run after the mark.
  void follow(const Mark& mark);
  // Of the same type and size, contiguous. The host's side is pinned memory, or the copy blocks.
  // Neither side is changed or freed before it has ended: memory of torch's allocator on the device
  // is let go when the caller's stream was ordered after a mark behind the copy.
  void copy(const at::Tensor& target, const at::Tensor& source);
  // The same for a small tensor that nobody keeps: the allocator keeps its memory from others until
  // the copy has ended. Of long ones it would gather as many as the host runs ahead.
  void copy_and_keep(const at::Tensor& target, const at::Tensor& source);
  Mark mark() const;
  // For a c10::OptionalStreamGuard, where others are to issue work on it. None on a CPU.
  const std::optional<c10::Stream>& stream() const { return stream_; }

 private:
  std::optional<c10::Stream> stream_;  // of a GPU
};

}  // namespace skein::tensor
