// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Ranks of one process: a lone rank, and ranks that are threads.
//
// A collective is a mailbox with one slot per rank, found by its number in program order. Issuing
// copies the rank's contribution into its slot; waiting blocks until all slots are full and then
// reads them. So works can be waited for in any order, and the caller's memory is its own again as
// soon as the call has returned.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/backend.h"
#include "skein/comm/carrier.h"
#include "skein/comm/ordered_sum.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

class SingleBackend final : public Backend {
 public:
  SingleBackend() : Backend(0, 1) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return copy(whole, shard, call);
  }
  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    return copy(shard, whole, call);
  }
  Work all_reduce(const at::Tensor&, uint64_t call) override { return done(call); }
  Work broadcast(const at::Tensor&, int, uint64_t call) override { return done(call); }
  Work gather_host(HostBytes, uint64_t call) override { return done(call); }
  Work compose(const Call& call, std::vector<at::Tensor>, std::function<void()> steps) override {
    steps();
    return done(call.number);
  }
  std::shared_ptr<Backend> split(const std::vector<int>&) override { return make_single(); }
  void shutdown() override {}

 private:
  static Work done(uint64_t call) {
    board::end_call(call);
    return {};
  }
  static Work copy(const at::Tensor& to, const at::Tensor& from, uint64_t call) {
    if (to.data_ptr() != from.data_ptr()) to.copy_(from);
    return done(call);
  }
};

using Bytes = std::vector<std::byte>;

struct Slot {
  bool full = false;
  Bytes bytes;
};

// Ranks that act together: all, or those of one part of a split.
struct Circle {
  std::string name;
  std::vector<int> members;  // by their rank among all

  int size() const { return static_cast<int>(members.size()); }
};

struct Mailbox {
  std::shared_ptr<const Circle> circle;
  int64_t number = 0;
  std::string call = {};  // what the first rank to arrive asked for
  int first_rank = 0;
  int arrived = 0;
  std::vector<Slot> slots = {};  // read-only, without the lock, once all are full

  bool is_full() const { return arrived == circle->size(); }
};

// What the ranks of one run_ranks() share.
class Hall {
 public:
  Hall(int size, std::chrono::milliseconds timeout) : endings_(size), timeout_(timeout) {}

  // Ranks count in the circle.
  std::shared_ptr<Mailbox> deposit(const std::shared_ptr<const Circle>& circle, int rank,
                                   int64_t number, const std::string& call, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(circle->name, number);
    auto& box = boxes_[key];
    if (!box) {
      box = std::make_shared<Mailbox>();
      *box = {.circle = circle, .number = number, .call = call, .first_rank = rank};
      box->slots.resize(circle->members.size());
    }
    if (box->call != call) {
      throw CommError(fmt::format("collective {}: rank {} calls {}, but rank {} calls {}", number,
                                  rank, call, box->first_rank, box->call));
    }
    box->slots[rank] = {.full = true, .bytes = std::move(bytes)};
    auto result = box;
    ++box->arrived;
    // Every rank holds the full box by its own pointer.
    if (result->is_full()) {
      boxes_.erase(key);
      changed_.notify_all();
    }
    return result;
  }

  void wait_until_full(int rank, const Mailbox& box) {
    std::unique_lock lock(mutex_);
    const auto full_or_lost = [&] { return box.is_full() || lost_rank(box) >= 0; };
    const bool in_time = changed_.wait_for(lock, timeout_, full_or_lost);
    if (box.is_full()) return;
    const auto call = fmt::format("{} (collective {}) on rank {} of {}", box.call, box.number, rank,
                                  box.circle->size());
    if (in_time) {
      const int lost = lost_rank(box);
      throw CommError(fmt::format("{} cannot end: rank {} {}", call, lost, ending_of(box, lost)));
    }
    throw CommError(fmt::format("{} timed out after {:.1f} s: waiting for rank {}", call,
                                static_cast<double>(timeout_.count()) / 1e3, first_missing(box)));
  }

  // `how` completes "rank 1 …".
  void leave(int rank, std::string how) {
    const std::lock_guard lock(mutex_);
    endings_[rank] = std::move(how);
    changed_.notify_all();
  }

 private:
  const std::string& ending_of(const Mailbox& box, int rank) const {
    return endings_[box.circle->members[rank]];
  }

  // A rank that has ended without filling its slot, or -1.
  int lost_rank(const Mailbox& box) const {
    for (int rank = 0; rank < box.circle->size(); ++rank) {
      if (!box.slots[rank].full && !ending_of(box, rank).empty()) return rank;
    }
    return -1;
  }

  static ptrdiff_t first_missing(const Mailbox& box) {
    return std::ranges::find(box.slots, false, &Slot::full) - box.slots.begin();
  }

  using Key = std::pair<std::string, int64_t>;  // circle and number

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Mailbox>> boxes_;  // those some rank has yet to reach
  std::vector<std::string> endings_;               // how a rank ended; empty while it runs
  std::chrono::milliseconds timeout_;
};

// A board is a process's, so ranks that are threads have none.
class ThreadBackend final : public Backend {
 public:
  ThreadBackend(int rank, std::shared_ptr<const Circle> circle, std::shared_ptr<Hall> hall)
      : Backend(rank, circle->size()), circle_(std::move(circle)), hall_(std::move(hall)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t) override {
    return exchange("all_gather", whole, shard, [whole](const Mailbox& box) {
      copy_slots(box, static_cast<std::byte*>(whole.data_ptr()));
    });
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t) override {
    return exchange("reduce_scatter", whole, whole, [shard, rank = rank()](const Mailbox& box) {
      sum_slots(box, shard, rank * shard.nbytes());
    });
  }

  Work all_reduce(const at::Tensor& whole, uint64_t) override {
    return exchange("all_reduce", whole, whole,
                    [whole](const Mailbox& box) { sum_slots(box, whole, 0); });
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t) override {
    const auto sent = rank() == root ? tensor : at::Tensor();
    return exchange(fmt::format("broadcast from rank {}", root), tensor, sent,
                    [tensor, root](const Mailbox& box) {
                      std::memcpy(tensor.data_ptr(), box.slots[root].bytes.data(), tensor.nbytes());
                    });
  }

  Work gather_host(HostBytes all, uint64_t) override {
    const auto part = std::ssize(*all) / size();
    const auto mine = all->begin() + rank() * part;
    return wait_for(fmt::format("host sum of {} bytes", part), Bytes(mine, mine + part),
                    [all](const Mailbox& box) { copy_slots(box, all->data()); });
  }

  // Its turn among the rank's calls is told to the others; the parts are put down by a thread, as a
  // step waits for the one before.
  Work compose(const Call& call, std::vector<at::Tensor>, std::function<void()> steps) override {
    wait_for(fmt::format("{} of {} bytes", call.operation, call.bytes), {}, [](const Mailbox&) {});
    if (!carrier_) carrier_ = std::make_unique<Carrier>();
    return Work([future = carrier_->enqueue(std::move(steps))] { future.get(); });
  }

  std::shared_ptr<Backend> split(const std::vector<int>& members) override {
    auto part = std::make_shared<Circle>();
    part->name = fmt::format("{}/{}.{}", circle_->name, splits_++, members.front());
    for (const int member : members) part->members.push_back(circle_->members[member]);
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_shared<ThreadBackend>(static_cast<int>(place), std::move(part), hall_);
  }

  void shutdown() override { carrier_.reset(); }

 private:
  // `measure` is the tensor that names the call's size; `sent` is what this rank contributes.
  Work exchange(const std::string& operation, const at::Tensor& measure, const at::Tensor& sent,
                std::function<void(const Mailbox&)> read) {
    SKEIN_CHECK(measure.is_cpu(), "ranks as threads exchange CPU tensors");
    const auto call = fmt::format("{} of {} bytes ({})", operation, measure.nbytes(),
                                  c10::toString(measure.scalar_type()));
    Bytes bytes;
    if (sent.defined()) {
      const auto* data = static_cast<const std::byte*>(sent.const_data_ptr());
      bytes.assign(data, data + sent.nbytes());
    }
    return wait_for(call, std::move(bytes), std::move(read));
  }

  // Puts the rank's part down; the work reads all of them.
  Work wait_for(const std::string& call, Bytes bytes, std::function<void(const Mailbox&)> read) {
    auto box = hall_->deposit(circle_, rank(), next_++, call, std::move(bytes));
    return Work([hall = hall_, rank = rank(), box = std::move(box), read = std::move(read)] {
      hall->wait_until_full(rank, *box);
      read(*box);
    });
  }

  static void copy_slots(const Mailbox& box, std::byte* out) {
    for (const auto& slot : box.slots) out = std::ranges::copy(slot.bytes, out).out;
  }

  static void sum_slots(const Mailbox& box, const at::Tensor& out, size_t byte_offset) {
    std::vector<const void*> pieces(box.slots.size());
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = box.slots[i].bytes.data() + byte_offset;
    ordered_sum(out.scalar_type(), out.data_ptr(), pieces, out.numel());
  }

  std::shared_ptr<const Circle> circle_;
  std::shared_ptr<Hall> hall_;
  int64_t next_ = 0;
  int splits_ = 0;
  std::unique_ptr<Carrier> carrier_;  // made when it is needed; last: its tasks use the others
};

// The first failure that is not a CommError, else the first.
class Failures {
 public:
  void add(std::exception_ptr failure, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    auto& kept = is_consequence ? comm_error_ : cause_;
    if (!kept) kept = std::move(failure);
  }

  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (comm_error_) std::rethrow_exception(comm_error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_, comm_error_;
};

using Body = std::function<void(int rank)>;

void run_rank(int rank, Hall& hall, const Body& body, Failures& failures) {
  std::string how = "has returned";
  try {
    body(rank);
  } catch (const CommError& error) {
    failures.add(std::current_exception(), true);
    how = fmt::format("has failed: {}", error.what());
  } catch (const std::exception& error) {
    failures.add(std::current_exception(), false);
    how = fmt::format("has failed: {}", error.what());
  } catch (...) {
    failures.add(std::current_exception(), false);
    how = "has failed";
  }
  hall.leave(rank, std::move(how));
}

}  // namespace

std::shared_ptr<Backend> make_single() { return std::make_shared<SingleBackend>(); }

void run_ranks(int size, const std::function<void(Group&)>& body, std::chrono::milliseconds timeout,
               int local_size) {
  SKEIN_CHECK(size >= 1, fmt::format("run_ranks over {} ranks", size));
  const auto hall = std::make_shared<Hall>(size, timeout);
  const auto world = std::make_shared<Circle>();
  world->name = "world";
  for (int rank = 0; rank < size; ++rank) world->members.push_back(rank);
  std::vector<std::shared_ptr<Backend>> backends;
  for (int rank = 0; rank < size; ++rank) {
    backends.push_back(std::make_shared<ThreadBackend>(rank, world, hall));
  }
  const auto run_body = [&](int rank) {
    auto backend = backends[rank];
    if (local_size > 0) {
      backend = sum_by_node(
          std::move(backend),
          {.local_rank = rank % local_size, .local_size = local_size, .sums_by_node = true});
    }
    Group group(stage_cuda(std::move(backend)));
    body(group);
  };
  Failures failures;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { run_rank(rank, *hall, run_body, failures); });
    }
  }
  failures.rethrow();
}

}  // namespace skein::comm
