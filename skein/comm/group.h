// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A set of ranks that act together, and what they can do together.
//
// `Group` is a value (a handle); size one is not special to callers. One thread at a time issues
// collectives, and every rank issues the same ones in the same order. Tensors are contiguous flat
// memory; collectives take aliases of it, so no version counter of a parameter ever moves.
//
// Sums are formed in rank order, 16-bit values in fp32 and rounded once: on CPU the result does not
// depend on how a buffer is cut into shards. (NCCL sums fp32 in an order of its own. Between nodes
// 16-bit values over NCCL are summed in two such steps: GroupOptions::sums_by_node.)
//
// A failure or a missed deadline is a CommError that names rank, operation and bytes. After one,
// nothing is repaired in the process: report and end with exit code 3.
//
// Every collective is written to the rank's board before it begins (board/board.h), with the place
// in the code that asked for it: `site` is not to be given.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "skein/core/store.h"

namespace skein::comm {

class Backend;  // backend.h

// A collective under way. Waiting orders: on CPU the data is there afterwards; on CUDA the current
// stream runs after it. Must be waited for exactly once (a default-made Work is already done).
class Work {
 public:
  Work() = default;
  explicit Work(std::function<void()> wait) : wait_(std::move(wait)) {}
  void wait();
  bool pending() const { return static_cast<bool>(wait_); }

 private:
  friend class Group;
  std::function<void()> wait_;
  at::Device device_{at::kCPU};  // where the result lies: what Group::finish() blocks on
};

// A host sum under way: take() blocks only until it is there, and must be called exactly once. Host
// sums end in the order they were started in, beside the collectives of tensors.
template <typename T>
class HostSum {
 public:
  HostSum() = default;
  std::vector<T> take();
  bool pending() const { return all_ != nullptr; }

 private:
  friend class Group;
  std::shared_ptr<std::vector<std::byte>> all_;  // of all ranks
  ptrdiff_t count_ = 0;                          // values of one rank
  Work work_;
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string backend = "gloo";       // gloo or nccl
  std::string address = "127.0.0.1";  // Gloo binds here
  int device_index = -1;              // CUDA device, -1: CPU
  // This rank's place on its node. The ranks of a node follow each other; else nodes are not used.
  int local_rank = 0;
  int local_size = 1;
  // Are sums formed inside each node first, then across nodes? Fewer bytes travel between nodes,
  // and last bits differ from those of one node. Not given: for 16-bit values over NCCL alone,
  // where there are several nodes, of several ranks each. (NCCL sums other types along the nodes
  // itself.)
  std::optional<bool> sums_by_node;
  // May CPU tensors go through memory that the ranks share, where all are on one machine? The
  // result is the same. Without: over Gloo's sockets, where bytes can be counted.
  bool shared_memory = true;
  // Per collective and for joining, then CommError. Where a launcher watches the boards, it is the
  // one that judges who is late (launch/watch/diagnosis.h): give a time far beyond its limits here.
  std::chrono::milliseconds timeout{1'800'000};
};

class Group {
 public:
  using Site = std::source_location;

  Group();  // size one
  explicit Group(std::shared_ptr<Backend> backend);

  int rank() const;
  int size() const;

  // `whole` has size() * shard.numel() elements; `shard` may be this rank's part of it.
  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, Site site = Site::current());
  // shard = this rank's part of the sum of every rank's `whole`. `shard` may be a part of `whole`.
  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole,
                      Site site = Site::current());
  // reduce_scatter + all_gather in place; numel must be a multiple of size().
  Work all_reduce(const at::Tensor& whole, Site site = Site::current());
  Work broadcast(const at::Tensor& tensor, int root, Site site = Site::current());

  // Host side, blocking, small: summed in rank order. They do not queue behind tensors.
  int64_t sum(int64_t value, Site site = Site::current());
  double sum(double value, Site site = Site::current());
  std::vector<int64_t> sum(const std::vector<int64_t>& values, Site site = Site::current());
  std::vector<double> sum(const std::vector<double>& values, Site site = Site::current());
  void barrier(Site site = Site::current());
  // The same without waiting.
  HostSum<int64_t> start_sum(const std::vector<int64_t>& values, Site site = Site::current());

  // The ranks that give the same colour, in the order of their ranks. Collective. Launchers compare
  // the calls of all ranks (launch/watch/diagnosis.h): issue the same on each part.
  Group split(int64_t colour, Site site = Site::current());

  // Blocks the host until the collective has ended (CUDA included).
  void finish(Work& work);

  // Payload bytes of tensors that this rank has handed to peers; for tests and metrics. Host sums
  // and barriers are control traffic and are not counted.
  int64_t bytes_sent() const;
  // Seconds that this process has been blocked in Work::wait() and host sums so far.
  static double seconds_blocked();

  // Ends the group in order, once all works were waited for. Not a barrier. Without it a lost peer
  // may block the destructor. Only rank() and size() may be called afterwards.
  void shutdown();

 private:
  const char* name() const { return is_part_ ? "split" : "world"; }  // on the board
  template <typename T>
  HostSum<T> start(const std::vector<T>& values, const char* operation, const Site& site);

  std::shared_ptr<Backend> backend_;
  bool is_part_ = false;  // made by split()
};

// Joins the other ranks through the store, which must outlive the group. Collective.
Group connect(const GroupOptions& options, Store& store);

// Runs `body` once per rank on threads of this process. For tests: a distributed mistake shows up
// in a second on a laptop. Rethrows the first failure that is not a CommError, else the first: a
// rank that throws or returns early makes the others fail, and its own reason is the one to read.
// Unlike Gloo, it also reports ranks whose collectives differ. With a local_size, sums are formed
// by nodes of so many ranks.
void run_ranks(int size, const std::function<void(Group&)>& body,
               std::chrono::milliseconds timeout = std::chrono::minutes(5), int local_size = 0);

}  // namespace skein::comm
