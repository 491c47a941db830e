// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How the ranks of a group bring each other host memory: the patterns of which the collectives over
// CPU tensors are made.
//
// Blocking, for one thread. Ranks make the same calls in the same order; those in different calls
// do not take each other's bytes: they wait, and the launchers tell why. A peer that is late or
// gone is an exception, after which the wire is of no use.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace skein::comm {

// What a reduce-scatter works on.
struct Reduction {
  c10::ScalarType type;
  int64_t count;     // elements of a part
  std::byte* shard;  // the sum of this rank's part; it may be a part of `whole`
  std::byte* whole;  // one part for each rank

  size_t part() const { return static_cast<size_t>(count) * c10::elementSize(type); }
};

class Wire {
 public:
  Wire(int rank, int size) : rank_(rank), size_(size) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // `all` are equal parts, one of each rank, of which this rank's is there: brings the others.
  virtual void gather(std::byte* all, size_t part) = 0;
  // Sums in rank order (ordered_sum.h).
  virtual void scatter(const Reduction& reduction) = 0;
  // The same, and then a gather of the whole. `shard` is this rank's part of `whole`.
  virtual void reduce(const Reduction& reduction) {
    scatter(reduction);
    gather(reduction.whole, reduction.part());
  }
  virtual void broadcast(std::byte* data, size_t size, int root) = 0;

 private:
  int rank_, size_;
};

}  // namespace skein::comm
