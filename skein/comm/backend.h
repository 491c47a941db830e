// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What carries a group's collectives: the boundary between Group and gloo/, nccl/, local/.
//
// Group checks the arguments, counts the bytes, and hands in flat aliases: contiguous, one
// dimension, not empty, with version counters of their own, holding on to the caller's memory. A
// backend may keep them until its work has been waited for, and nothing longer.
//
// `call` is the collective's number on the rank's board (board/board.h; 0: not there). The backend
// ends it there when the collective has ended, and leaves it when it has failed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "skein/comm/group.h"

namespace skein::comm {

// Shared with the thread that carries it: it may outlive the work.
using HostBytes = std::shared_ptr<std::vector<std::byte>>;

// A call as errors and the board name it.
struct Call {
  const char* operation;
  size_t bytes;
  uint64_t number;  // on the rank's board (board/board.h); 0: not there
};

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

  // A collective that is made of others: `steps` issues them and may wait for each, in the order of
  // this backend's collectives, while the caller goes on. `tensors` are kept as long as needed.
  virtual Work compose(const Call& call, std::vector<at::Tensor> tensors,
                       std::function<void()> steps) = 0;

  // The group of `members`, ranks of this one in rising order, this rank among them. All ranks call
  // it together, each with the members of its own part.
  virtual std::shared_ptr<Backend> split(const std::vector<int>& members) = 0;

  // Does it form sums of this type along the nodes by itself?
  virtual bool knows_nodes(at::ScalarType) const { return false; }

  virtual void shutdown() = 0;

  void count_sent(int64_t bytes) { bytes_sent_ += bytes; }
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  int rank_;
  int size_;
  int64_t bytes_sent_ = 0;
};

// Where the ranks of a group meet.
struct Meeting {
  GroupOptions options;
  Store* store;
  std::string prefix;  // of all its keys in the store

  // Where these ranks of the group meet at its n-th split.
  Meeting split(const std::vector<int>& members, int nth) const;
};

// Size one: collectives copy or do nothing, on the tensor's own device.
std::shared_ptr<Backend> make_single();
// CPU tensors: through memory that the ranks share where all are on one machine, else Gloo over
// TCP. Collective.
std::shared_ptr<Backend> make_gloo(const GroupOptions& options, Store& store);
// The same without tensors: for a backend that carries those itself. Collective.
std::shared_ptr<Backend> make_gloo_for_host(const Meeting& meeting);
// NCCL, CUDA tensors, and a Gloo group inside for the host's sums. Collective.
std::shared_ptr<Backend> make_nccl(const GroupOptions& options, Store& store);
// Carries CUDA tensors through pinned host memory over a backend that only knows CPU tensors, so
// that two ranks can share one GPU and sums keep their order. CPU tensors pass straight through.
std::shared_ptr<Backend> stage_cuda(std::shared_ptr<Backend> inner);

// Forms sums inside each node first, then across nodes (node_sums.cpp); `flat` itself where nodes
// are not alike, or nothing is gained and it was not asked for. Collective.
std::shared_ptr<Backend> sum_by_node(std::shared_ptr<Backend> flat, const GroupOptions& options);

}  // namespace skein::comm
