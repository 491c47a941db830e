// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What carries a group's collectives: the boundary between Group and gloo/, nccl/, local/.
//
// Group checks the arguments, counts the bytes, and hands in flat aliases: contiguous, one
// dimension, not empty, with version counters of their own, holding on to the caller's memory. A
// backend may keep them until its work has been waited for, and nothing longer.
//
// `call` is the collective's number on the rank's board (launch/board.h; 0 without one). The
// backend ends it there when the collective has ended, and leaves it when it has failed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "skein/comm/group.h"

namespace skein::comm {

// Shared with the thread that carries it: it may outlive the work.
using HostBytes = std::shared_ptr<std::vector<std::byte>>;

class Backend {
 public:
  Backend(int rank, int size) : rank_(rank), size_(size) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // As in Group. Works may be waited for in any order, on each rank another one.
  virtual Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) = 0;
  virtual Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) = 0;
  virtual Work all_reduce(const at::Tensor& whole, uint64_t call) = 0;
  virtual Work broadcast(const at::Tensor& tensor, int root, uint64_t call) = 0;

  // Host memory, one equal part per rank in rank order: this rank's is there, the work brings the
  // others'. Host sums and barriers are made of it. It does not queue behind tensors.
  virtual Work gather_host(HostBytes all, uint64_t call) = 0;

  virtual void shutdown() = 0;

  void count_sent(int64_t bytes) { bytes_sent_ += bytes; }
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  int rank_;
  int size_;
  int64_t bytes_sent_ = 0;
};

// Size one: collectives copy or do nothing, on the tensor's own device.
std::shared_ptr<Backend> make_single();
// Gloo over TCP, CPU tensors. Collective.
std::shared_ptr<Backend> make_gloo(const GroupOptions& options, Store& store);
// The same without tensors: for a backend that carries those itself. Collective.
std::shared_ptr<Backend> make_gloo_for_host(const GroupOptions& options, Store& store);
// NCCL, CUDA tensors, and a Gloo group inside for the host's sums. Collective.
std::shared_ptr<Backend> make_nccl(const GroupOptions& options, Store& store);
// Carries CUDA tensors through pinned host memory over a backend that only knows CPU tensors, so
// that two ranks can share one GPU and sums keep their order. CPU tensors pass straight through.
std::shared_ptr<Backend> stage_cuda(std::shared_ptr<Backend> inner);

}  // namespace skein::comm
